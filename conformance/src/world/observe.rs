//! The oracle at every step: what a provider is asked for and what changes there is held to what bb-box promises.

use bbbox::{
    guest::Guest,
    id::BoxId,
    record::{BoxRecord, BoxState},
};

use super::{
    cloud::{Machine, Wish},
    parts::Parts,
};

impl Parts {
    fn record_of(&self, install: usize, id: &BoxId) -> Option<BoxRecord> {
        self.installs[install].store.record(id).ok().flatten()
    }

    /// A guest of a claim that is not made yet.
    pub(super) fn claim_of(&self, wish: &Wish) -> Guest {
        Guest {
            install: wish.owner.install.clone(),
            box_id: wish.owner.box_id.clone(),
            reference: wish.reference.to_string(),
            host: self.clouds[wish.cloud].hosts[wish.host].name.clone(),
            address: None,
            size: wish.size,
            data: std::collections::BTreeMap::new(),
            facts: std::collections::BTreeMap::new(),
        }
    }

    /// *A record exists before a claim, a claim before a change.*
    pub(super) fn judge_create(&mut self, install: usize, wish: &Wish) {
        // A process that ends with its store has one moment left.
        if self.dying {
            return;
        }
        let claimed = self
            .record_of(install, &wish.owner.box_id)
            .and_then(|record| record.guest)
            .is_some_and(|guest| guest.reference == wish.reference.to_string());
        if !claimed {
            let label = self.fates.label(&wish.owner.box_id);
            self.problem(format!("a guest of {label} is made that its record does not claim"));
        }
    }

    /// *A box is ended only by who may*, and *a reference alone proves nothing*.
    pub(super) fn judge_delete(&mut self, install: usize, c: usize, asked: &Guest, machine: &Machine) {
        let label = self.fates.label(&machine.owner.box_id);
        if !machine.is(&asked.install, &asked.box_id) {
            let of = self.fates.label(&asked.box_id);
            self.problem(format!("the guest of {label} is deleted for {of}: its reference was used again"));
            return;
        }
        if machine.owner.install != self.installs[install].id {
            self.problem(format!("the guest of {label} is deleted by another install"));
        }
        let record = self.record_of(install, &machine.owner.box_id);
        let its = record.as_ref().is_some_and(|record| {
            record.guest.as_ref().is_some_and(|g| g.reference == machine.reference.to_string())
                && record.backend.as_ref() == Some(&self.clouds[c].id)
        });
        let Some(fate) = self.fates.of(&machine.owner.box_id) else { return };
        let thread_ended = fate.threads.iter().any(|t| self.threads.found_ended(fate.install, t));
        if fate.must_live() && !thread_ended && (its || record.is_none()) && !machine.unasked {
            self.problem(format!("the guest of {label} is deleted and nobody asked for that"));
        }
    }

    /// *Connecting never starts a box*: only a start does, and the record says that there is one.
    pub(super) fn judge_start(&mut self, install: usize, guest: &Guest) {
        let state = self.record_of(install, &guest.box_id).map(|record| record.state);
        if !matches!(state, Some(BoxState::Starting | BoxState::Acquiring)) {
            let label = self.label(guest);
            self.problem(format!("{label} is started while its record says {state:?}"));
        }
    }

    /// What holds at every moment at a provider.
    pub(super) fn after_change(&mut self, c: usize) {
        let mut found = Vec::new();
        let cloud = &self.clouds[c];
        for machine in cloud.guests.values().filter(|m| !m.unasked) {
            let twin = self.clouds.iter().flat_map(|cloud| cloud.guests.values()).any(|other| {
                !other.unasked
                    && other.is(&machine.owner.install, &machine.owner.box_id)
                    && (other.reference, other.birth) != (machine.reference, machine.birth)
            });
            if twin {
                found.push(format!("two guests act as {}", self.fates.label(&machine.owner.box_id)));
                break;
            }
        }
        if !cloud.enforces && !cloud.loose {
            for (n, host) in cloud.hosts.iter().enumerate() {
                for install in self.installs.iter().filter(|install| !install.lost) {
                    // The stranger's has its room from the beginning, so everybody must have counted it.
                    let strangers = |m: &Machine| {
                        self.stranger.as_ref().is_some_and(|owner| owner.install == m.owner.install)
                    };
                    let its = cloud.guests.values().filter(|m| {
                        let counts = (m.owner.install == install.id && !m.unasked) || strangers(m);
                        m.running && m.host == n && counts
                    });
                    let used: u64 = its.map(|m| m.size.memory_mib).sum();
                    if used > host.memory_mib {
                        let (id, total) = (&cloud.id, host.memory_mib);
                        found.push(format!("{used} MiB run on host {n} of {id}, which has {total}"));
                    }
                }
            }
        }
        for words in found {
            self.problem(words);
        }
    }

    /// *At most once*: each script of a schedule is launched by one call.
    pub(super) fn launched(&mut self, script: &str) {
        let times = self.fates.launches.entry(script.to_owned()).or_insert(0);
        *times += 1;
        if *times > 1 && script.contains("token") {
            let words = format!("{script:?} was launched {times} times");
            self.problem(words);
        }
    }
}
