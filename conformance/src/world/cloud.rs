//! One provider: hosts, guests, room, references that are used again, and deeds that happen later.
//!
//! It knows what is true. Calls, with their latency and their faults, are `backend`'s; what is inside a guest is
//! `inside`'s. Whoever changes a guest here says who they are, and the oracle looks on.

use std::collections::BTreeMap;

use bbbox::{
    Result,
    error::{Error, ErrorKind},
    guest::{Guest, Owner},
    id::{BackendId, BoxId, InstallId},
    size::Size,
};

use super::{inside::Inside, parts::Parts};

/// Something that happens at a provider after whoever asked for it has stopped waiting.
pub(super) type Deed = Box<dyn FnOnce(&mut Parts) + Send>;

/// One host of a provider.
#[derive(Debug)]
pub(super) struct Host {
    /// Its name, where the provider has several.
    pub(super) name: Option<String>,
    pub(super) memory_mib: u64,
    pub(super) down_until: u64,
}

pub(super) struct Cloud {
    pub(super) id: BackendId,
    pub(super) hosts: Vec<Host>,
    pub(super) enforces: bool,
    pub(super) needs_stop: bool,
    pub(super) guests: BTreeMap<u32, Machine>,
    /// Guests that are gone: a listing that lags still shows them.
    pub(super) past: Vec<Machine>,
    pub(super) born: u64,
    /// Whether something happened that bb-box could not have reckoned with: then more may run than fits.
    pub(super) loose: bool,
    later: BTreeMap<(u64, u64), Deed>,
    deeds: u64,
}

/// One guest.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) reference: u32,
    pub(super) host: usize,
    pub(super) owner: Owner,
    pub(super) size: Size,
    pub(super) running: bool,
    /// Whether it chose to stop.
    pub(super) by_guest: bool,
    /// What tells it from every other guest there ever was.
    pub(super) birth: u64,
    pub(super) made: u64,
    pub(super) gone: Option<u64>,
    /// Whether it was made by a deed that nobody waited for any more, or by hand: bb-box cannot know of it at once.
    pub(super) unasked: bool,
    pub(super) inside: Inside,
}

impl Machine {
    pub(super) fn is(&self, install: &InstallId, box_id: &BoxId) -> bool {
        self.owner.install == *install && self.owner.box_id == *box_id
    }
}

impl Cloud {
    pub(super) fn new(id: BackendId, hosts: Vec<Host>, enforces: bool, needs_stop: bool) -> Self {
        Self {
            id,
            hosts,
            enforces,
            needs_stop,
            guests: BTreeMap::new(),
            past: Vec::new(),
            born: 0,
            loose: false,
            later: BTreeMap::new(),
            deeds: 0,
        }
    }

    /// Has `deed` happen at `at`.
    pub(super) fn later(&mut self, at: u64, deed: Deed) {
        self.deeds += 1;
        self.later.insert((at, self.deeds), deed);
    }

    /// The next deed whose time has come.
    pub(super) fn due(&mut self, now: u64) -> Option<Deed> {
        let (at, _) = self.later.first_key_value()?.0;
        if *at <= now { self.later.pop_first().map(|(_, deed)| deed) } else { None }
    }

    /// Whether nothing is to happen by itself any more.
    pub(super) fn is_still(&self) -> bool {
        self.later.is_empty()
    }

    pub(super) fn lowest_free(&self) -> u32 {
        (100..).find(|n| !self.guests.contains_key(n)).unwrap_or_default()
    }

    /// The guest that `guest` names, if it is still that box's.
    pub(super) fn owned(&mut self, guest: &Guest) -> Option<&mut Machine> {
        let machine = self.guests.get_mut(&guest.reference.parse().ok()?)?;
        machine.is(&guest.install, &guest.box_id).then_some(machine)
    }

    /// The oldest guest of a box.
    pub(super) fn of_box(&self, install: &InstallId, box_id: &BoxId) -> Option<&Machine> {
        self.guests.values().filter(|m| m.is(install, box_id)).min_by_key(|m| m.birth)
    }

    pub(super) fn memory(&self, host: usize) -> u64 {
        let running = self.guests.values().filter(|m| m.running && m.host == host);
        running.map(|m| m.size.memory_mib).sum()
    }

    /// Takes memory for `more` MiB on `host`, where the provider counts.
    pub(super) fn fits(&self, host: usize, more: u64) -> Result<()> {
        let (used, total) = (self.memory(host), self.hosts[host].memory_mib);
        if !self.enforces || used + more <= total {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NoCapacity, format!("memory is full: {used} of {total} MiB")))
    }

    pub(super) fn handle(&self, machine: &Machine) -> Guest {
        Guest {
            install: machine.owner.install.clone(),
            box_id: machine.owner.box_id.clone(),
            reference: machine.reference.to_string(),
            host: self.hosts[machine.host].name.clone(),
            address: None,
            size: machine.size,
            data: BTreeMap::new(),
            facts: BTreeMap::new(),
        }
    }

    /// Every guest as it was at `then`.
    pub(super) fn as_of(&self, then: u64) -> impl Iterator<Item = &Machine> {
        let all = self.guests.values().chain(self.past.iter().rev());
        all.filter(move |m| m.made <= then && m.gone.is_none_or(|gone| gone > then))
    }
}

/// What is to be made.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) cloud: usize,
    pub(super) host: usize,
    pub(super) reference: u32,
    pub(super) owner: Owner,
    pub(super) size: Size,
    /// Whether it is started as it is made.
    pub(super) running: bool,
}

/// What changes at a provider. `who` is for the trace.
impl Parts {
    /// Makes a guest; `false` when its reference is taken.
    pub(super) fn create(&mut self, who: &str, wish: &Wish, unasked: bool) -> Result<bool> {
        let (now, boot) = (self.now, self.schedule.shape.boot_ms);
        let Wish { cloud: c, host, reference, owner, size, running } = wish;
        let cloud = &mut self.clouds[*c];
        if cloud.guests.contains_key(reference) {
            return Ok(false);
        }
        if *running {
            cloud.fits(*host, size.memory_mib)?;
        }
        cloud.born += 1;
        let machine = Machine {
            reference: *reference,
            host: *host,
            owner: owner.clone(),
            size: *size,
            running: *running,
            by_guest: false,
            birth: cloud.born,
            made: now,
            gone: None,
            unasked,
            inside: Inside::new(now + boot),
        };
        cloud.guests.insert(*reference, machine);
        let words = format!("{who}: makes {} {reference} for {}", cloud.id, self.fates.label(&owner.box_id));
        self.note("cloud", &words);
        self.after_change(*c);
        Ok(true)
    }

    /// Deletes the guest of that birth, if it is there.
    pub(super) fn delete(&mut self, who: &str, c: usize, birth: u64) -> bool {
        let now = self.now;
        let cloud = &mut self.clouds[c];
        let Some(reference) = cloud.guests.values().find(|m| m.birth == birth).map(|m| m.reference) else {
            return false;
        };
        if let Some(mut machine) = cloud.guests.remove(&reference) {
            machine.inside.power_off(now);
            machine.running = false;
            machine.gone = Some(now);
            let words = format!(
                "{who}: deletes {} {reference} of {}",
                cloud.id,
                self.fates.label(&machine.owner.box_id)
            );
            cloud.past.push(machine);
            self.note("cloud", &words);
        }
        self.after_change(c);
        true
    }

    /// Turns a guest on or off; whether that changed anything, `None` when it is not there.
    pub(super) fn power(&mut self, who: &str, c: usize, birth: u64, on: bool) -> Result<Option<bool>> {
        let (now, boot) = (self.now, self.schedule.shape.boot_ms);
        let cloud = &mut self.clouds[c];
        let Some(found) = cloud.guests.values().find(|m| m.birth == birth) else { return Ok(None) };
        let (reference, host, memory) = (found.reference, found.host, found.size.memory_mib);
        if found.running == on {
            return Ok(Some(false));
        }
        if on {
            cloud.fits(host, memory)?;
        }
        let id = cloud.id.clone();
        if let Some(machine) = cloud.guests.get_mut(&reference) {
            machine.running = on;
            machine.by_guest = false;
            if on {
                machine.inside.power_on(now + boot)
            } else {
                machine.inside.power_off(now)
            }
            let label = self.fates.label(&machine.owner.box_id);
            let verb = if on { "starts" } else { "stops" };
            self.note("cloud", &format!("{who}: {verb} {id} {reference} of {label}"));
        }
        self.after_change(c);
        Ok(Some(true))
    }

    /// Another size for a guest; whether it is there.
    pub(super) fn grow(&mut self, who: &str, c: usize, birth: u64, size: Size) -> bool {
        let cloud = &mut self.clouds[c];
        let id = cloud.id.clone();
        let Some(machine) = cloud.guests.values_mut().find(|m| m.birth == birth) else { return false };
        machine.size = size;
        let words = format!("{who}: resizes {id} {} to {size}", machine.reference);
        self.note("cloud", &words);
        self.after_change(c);
        true
    }

    /// Another owner for a guest; whether it is there.
    pub(super) fn relabel(&mut self, who: &str, c: usize, birth: u64, owner: &Owner) -> bool {
        let cloud = &mut self.clouds[c];
        let id = cloud.id.clone();
        let Some(machine) = cloud.guests.values_mut().find(|m| m.birth == birth) else { return false };
        machine.owner = owner.clone();
        let words = format!("{who}: relabels {id} {} as {}", machine.reference, owner.name);
        self.note("cloud", &words);
        true
    }
}
