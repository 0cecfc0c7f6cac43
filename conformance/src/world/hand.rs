//! What happens to the world from outside: guests that end, people at the provider, hosts that go, clocks that jump.

use std::sync::Arc;

use bbbox::{
    embed::ThreadState,
    guest::Owner,
    id::{BoxName, InstallId},
    simulation::Memory,
};

use super::{
    World,
    action::{Action, Hand},
    cloud::Wish,
    parts::Parts,
    threads::thread,
};

/// Does what `action` says to the world, for the install of whoever does it.
pub(super) fn apply(world: &Arc<World>, install: usize, action: &Action) {
    match action {
        Action::Die => world.with(|p| p.die_now = true),
        Action::LoseStore => {
            world.with(|p| p.lose_store(install));
            world.die("its store is lost");
        }
        _ => world.with(|p| p.happen(install, action)),
    }
}

impl Parts {
    fn happen(&mut self, install: usize, action: &Action) {
        self.fault("happens");
        match action {
            Action::FillStore { ms } => self.fill(install, *ms),
            Action::JumpClock { ms } => self.skew += ms,
            Action::GuestEnds { slot, by_guest } => self.guest_ends(*slot, *by_guest),
            Action::ByHand { slot, deed } => self.by_hand(*slot, *deed),
            Action::HostDown { backend, host, ms, crash } => self.host_down(*backend, *host, *ms, *crash),
            Action::ThreadEnds { thread: n } => self.thread_is(*n, ThreadState::Ended),
            Action::ThreadWorks { thread: n, works } => {
                let state = if *works { ThreadState::Working } else { ThreadState::Live };
                if self.threads.of(thread(*n).as_str()) != ThreadState::Ended {
                    self.thread_is(*n, state);
                }
            }
            Action::CutLines => self.cuts += 1,
            _ => {}
        }
    }

    fn thread_is(&mut self, n: u64, state: ThreadState) {
        self.threads.truth.insert(thread(n).to_string(), state);
    }

    /// The store of an install is lost; the process ends with it.
    fn lose_store(&mut self, install: usize) {
        self.fault("happens");
        match Memory::new() {
            Ok(store) => {
                self.installs[install].store = store;
                self.installs[install].lost = true;
                self.installs[install].full = false;
            }
            Err(error) => self.problem(format!("a store could not be made: {}", error.chain())),
        }
    }

    /// The store takes nothing more for `ms`.
    fn fill(&mut self, install: usize, ms: u64) {
        self.limit(install, true);
        self.installs[install].full = true;
        let at = self.now + ms;
        self.clouds[0].later(at, Box::new(move |p| p.empty(install)));
    }

    /// The store takes all again.
    pub(super) fn empty(&mut self, install: usize) {
        self.limit(install, false);
        self.installs[install].full = false;
        self.last_fault = Some(self.now);
    }

    fn limit(&mut self, install: usize, full: bool) {
        if let Err(error) = self.installs[install].store.fill(full) {
            self.problem(format!("the store's size could not be set: {}", error.chain()));
        }
    }

    /// The guest of a slot: its provider and what tells it from others.
    fn guest_of(&self, slot: usize) -> Option<(usize, u64)> {
        let fate = self.fates.all.get(&slot)?;
        let install: InstallId = self.installs[fate.install].id.clone();
        self.clouds
            .iter()
            .enumerate()
            .find_map(|(c, cloud)| Some((c, cloud.of_box(&install, &fate.id)?.birth)))
    }

    fn off(&mut self, slot: usize) {
        if let Some(fate) = self.fates.all.get_mut(&slot) {
            fate.may_be_off = true;
            fate.changed = self.now;
        }
    }

    fn guest_ends(&mut self, slot: usize, by_guest: bool) {
        self.off(slot);
        let Some((c, birth)) = self.guest_of(slot) else { return };
        let who = if by_guest { "the guest itself" } else { "a crash" };
        drop(self.power(who, c, birth, false));
        if let Some(machine) = self.clouds[c].guests.values_mut().find(|m| m.birth == birth) {
            machine.by_guest = by_guest;
        }
    }

    fn by_hand(&mut self, slot: usize, deed: Hand) {
        let Some((c, birth)) = self.guest_of(slot) else { return };
        match deed {
            Hand::Delete => {
                if let Some(fate) = self.fates.all.get_mut(&slot) {
                    fate.may_end_by("deleted by hand");
                }
                self.delete("somebody", c, birth);
            }
            Hand::Stop => {
                self.off(slot);
                drop(self.power("somebody", c, birth, false));
            }
            Hand::Start => {
                self.off(slot);
                self.clouds[c].loose = true;
                drop(self.power("somebody", c, birth, true));
            }
            Hand::Rename | Hand::Copy | Hand::Disown | Hand::Relabel => self.marked(slot, c, birth, deed),
        }
    }

    /// Somebody changes whose a guest is, or makes another that is marked alike.
    fn marked(&mut self, slot: usize, c: usize, birth: u64, deed: Hand) {
        let Some(machine) = self.clouds[c].guests.values().find(|m| m.birth == birth).cloned() else {
            return;
        };
        let mut owner = machine.owner.clone();
        let fate = self.fates.all.get_mut(&slot);
        match deed {
            Hand::Disown | Hand::Relabel => {
                if let Some(fate) = fate {
                    fate.may_end_by("deleted by hand");
                }
                let other = if deed == Hand::Disown { self.stranger.clone() } else { self.other_of(slot) };
                let Some(other) = other else { return };
                self.clouds[c].loose = true;
                self.relabel("somebody", c, birth, &other);
                if let Some(machine) = self.clouds[c].guests.values_mut().find(|m| m.birth == birth) {
                    machine.unasked = true;
                }
            }
            Hand::Rename => {
                owner.name = BoxName::parse("by-hand").unwrap_or(owner.name);
                self.relabel("somebody", c, birth, &owner);
            }
            _ => {
                if let Some(fate) = fate {
                    fate.by_hand = true;
                }
                // A second guest with the same owner, as a copy at the provider has.
                let reference = self.clouds[c].lowest_free();
                let wish = Wish {
                    cloud: c,
                    host: machine.host,
                    reference,
                    owner,
                    size: machine.size,
                    running: true,
                };
                self.clouds[c].loose = true;
                drop(self.create("somebody", &wish, true));
            }
        }
    }

    /// What another box of the same install has its guest marked with.
    fn other_of(&mut self, slot: usize) -> Option<Owner> {
        let install = self.fates.all.get(&slot)?.install;
        let other = self.fates.all.values().rfind(|f| f.slot != slot && f.install == install)?.slot;
        let (c, birth) = self.guest_of(other)?;
        let owner = self.clouds[c].guests.values().find(|m| m.birth == birth)?.owner.clone();
        if let Some(fate) = self.fates.all.get_mut(&other) {
            fate.by_hand = true;
        }
        Some(owner)
    }

    fn host_down(&mut self, backend: u64, host: u64, ms: u64, crash: bool) {
        let count = self.clouds.len();
        let c = usize::try_from(backend).unwrap_or(0) % count;
        let h = usize::try_from(host).unwrap_or(0) % self.clouds[c].hosts.len();
        self.clouds[c].hosts[h].down_until = self.now + ms;
        // Whoever waited for something there has not heard by the time it is back.
        let at = self.now + ms;
        self.clouds[c].later(at, Box::new(|p| p.last_fault = Some(p.now)));
        self.cuts += 1;
        if !crash {
            return;
        }
        let births: Vec<u64> =
            self.clouds[c].guests.values().filter(|m| m.host == h && m.running).map(|m| m.birth).collect();
        let slots: Vec<usize> = self.fates.all.keys().copied().collect();
        for slot in slots {
            if self.guest_of(slot).is_some_and(|(at, birth)| at == c && births.contains(&birth)) {
                self.off(slot);
            }
        }
        for birth in births {
            drop(self.power("a crash of its host", c, birth, false));
        }
    }
}
