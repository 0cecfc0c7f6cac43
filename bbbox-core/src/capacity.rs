//! Room on a backend's hosts: named limits, and whether one more box fits.
//!
//! A backend reports what is used as it sees it, and which boxes it saw. The registry adds what its own records
//! hold beyond that, in the transaction that places a box, so that a thousand acquires at once never place more
//! than fits.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{id::BoxId, size::Size};

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitName {
    /// Memory of running guests, in MiB.
    Memory,
    /// Root disks, in MiB.
    Disk,
    /// Cores of running guests.
    Cpu,
    /// Guests, running or stopped.
    Guests,
    /// Machines of a real pool.
    Machines,
    /// Cores that one box may have: each box is held to it alone.
    BoxCores,
}

impl LimitName {
    /// What a box of `size` takes of this limit, running or stopped.
    #[must_use]
    pub fn need(self, size: &Size, running: bool) -> u64 {
        match self {
            Self::Memory if running => size.memory_mib,
            Self::Cpu if running => u64::from(size.cores),
            Self::Memory | Self::Cpu => 0,
            Self::Disk => size.disk_mib.unwrap_or(0),
            Self::Guests | Self::Machines => 1,
            Self::BoxCores => u64::from(size.cores),
        }
    }

    /// Whether what boxes take of it adds up.
    const fn is_shared(self) -> bool {
        !matches!(self, Self::BoxCores)
    }
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Cpu => "cpu",
            Self::Guests => "guests",
            Self::Machines => "machines",
            Self::BoxCores => "cores of one box",
        })
    }
}

/// One limit of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// What it counts.
    pub name: LimitName,
    /// What is taken now, by anyone.
    pub used: u64,
    /// The most there is, if that is known; no bound otherwise.
    pub total: Option<u64>,
    /// What is kept for the host itself.
    #[serde(default)]
    pub reserve: u64,
}

impl Limit {
    /// The most that boxes may take together, or one box where it does not add up; `None` without a total.
    #[must_use]
    pub fn most(&self) -> Option<u64> {
        self.total.map(|total| total.saturating_sub(self.reserve))
    }

    /// What is left when `more` is taken beyond `used`; `None` without a total.
    #[must_use]
    pub fn free(&self, more: u64) -> Option<u64> {
        self.most().map(|most| most.saturating_sub(self.used).saturating_sub(more))
    }
}

/// What a backend counted for one of the caller's own boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Its size as counted.
    pub size: Size,
    /// Whether it was counted as running.
    pub running: bool,
}

/// The room on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRoom {
    /// The host's name, where the backend has several.
    pub host: Option<String>,
    /// Its limits.
    pub limits: Vec<Limit>,
    /// The caller's own boxes that `used` includes.
    pub counted: BTreeMap<BoxId, Counted>,
    /// Why the host takes no box at all now, such as a missing image.
    pub closed: Option<String>,
}

/// What a backend can take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Each host's room, in the order in which they are tried.
    pub hosts: Vec<HostRoom>,
}

impl Capacity {
    /// What was counted for one of the caller's own boxes.
    #[must_use]
    pub fn counted(&self, id: &BoxId) -> Option<&Counted> {
        self.hosts.iter().find_map(|host| host.counted.get(id))
    }
}

/// A box as the records hold it: what it takes whether or not a backend has seen it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The size it is held at: while it is being resized, the larger of both in each part.
    pub size: Size,
    /// Whether it runs or is about to.
    pub running: bool,
}

impl HostRoom {
    /// Whether a box that takes `ask` would fit if the host had no other.
    #[must_use]
    pub fn is_large_enough(&self, ask: &Holding) -> bool {
        let enough =
            |limit: &Limit| limit.most().is_none_or(|most| limit.name.need(&ask.size, ask.running) <= most);
        self.limits.iter().all(enough)
    }

    /// Whether a box that takes `ask` fits beside `held`, what the records hold on this host; else what is full.
    ///
    /// `ask_for` is left out of `held`: it is the box that asks.
    ///
    /// # Errors
    /// The words that say which limit is full, its count and what it would need.
    pub fn fits<'a>(
        &self,
        ask_for: &BoxId,
        ask: Holding,
        held: impl Iterator<Item = (&'a BoxId, Holding)> + Clone,
    ) -> Result<(), String> {
        let name = self.host.as_deref().map(|h| format!("{h}: ")).unwrap_or_default();
        if let Some(why) = &self.closed {
            return Err(format!("{name}{why}"));
        }
        for limit in &self.limits {
            let counted =
                |id: &BoxId| self.counted.get(id).map_or(0, |c| limit.name.need(&c.size, c.running));
            let unseen: u64 = held
                .clone()
                .filter(|(id, _)| *id != ask_for)
                .map(|(id, h)| limit.name.need(&h.size, h.running).saturating_sub(counted(id)))
                .sum();
            let all = limit.name.need(&ask.size, ask.running);
            if !limit.name.is_shared() {
                if let Some(most) = limit.most().filter(|most| *most < all) {
                    return Err(format!("{name}it has {most} cores, and the box is to have {all}"));
                }
                continue;
            }
            let need = all.saturating_sub(counted(ask_for));
            if let Some(free) = limit.free(unseen).filter(|free| *free < need) {
                let total = limit.total.unwrap_or_default();
                let unit =
                    if matches!(limit.name, LimitName::Memory | LimitName::Disk) { " MiB" } else { "" };
                return Err(format!(
                    "{name}{} is full: it needs {need}{unit}, and {free} of {total}{unit} are free ({} taken, {} kept for the host)",
                    limit.name,
                    limit.used + unseen,
                    limit.reserve
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(used: u64, total: u64) -> HostRoom {
        HostRoom {
            host: None,
            limits: vec![Limit { name: LimitName::Memory, used, total: Some(total), reserve: 1024 }],
            counted: BTreeMap::new(),
            closed: None,
        }
    }

    fn id(n: u64) -> BoxId {
        let mut n = n;
        BoxId::draw(|| {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            n
        })
    }

    #[test]
    fn what_the_backend_has_not_seen_counts_once() {
        let (new, mine) = (id(1), id(2));
        let hold = Holding { size: Size::new(1, 2048), running: true };
        let held = [(&mine, hold)];
        assert!(room(0, 5120).fits(&new, hold, held.into_iter()).is_ok());
        assert!(room(0, 5119).fits(&new, hold, held.into_iter()).is_err());
        let mut seen = room(2048, 5120);
        seen.counted.insert(mine.clone(), Counted { size: hold.size, running: true });
        assert!(seen.fits(&new, hold, held.into_iter()).is_ok());
    }

    #[test]
    fn a_stopped_box_takes_memory_only_once_it_starts() {
        let (new, mine) = (id(1), id(2));
        let stopped = Holding { size: Size::new(1, 4096), running: false };
        let running = Holding { running: true, ..stopped };
        assert!(room(0, 5120).fits(&new, running, [(&mine, stopped)].into_iter()).is_ok());
        assert!(room(0, 5120).fits(&new, running, [(&mine, running)].into_iter()).is_err());
    }

    #[test]
    fn a_box_has_no_more_cores_than_its_host_and_boxes_share_them() {
        let room = HostRoom {
            limits: vec![Limit { name: LimitName::BoxCores, used: 0, total: Some(2), reserve: 0 }],
            ..room(0, 4096)
        };
        let (new, mine) = (id(1), id(2));
        let with = |cores| Holding { size: Size::new(cores, 2048), running: true };
        assert_eq!(room.fits(&new, with(2), [(&mine, with(2))].into_iter()), Ok(()));
        let words = room.fits(&new, with(4), std::iter::empty()).unwrap_err();
        assert_eq!(words, "it has 2 cores, and the box is to have 4");
        assert!(room.is_large_enough(&with(2)) && !room.is_large_enough(&with(3)));
    }

    #[test]
    fn a_refusal_names_the_limit_its_count_and_the_need() {
        let words = room(3000, 4096)
            .fits(&id(1), Holding { size: Size::new(1, 2048), running: true }, std::iter::empty())
            .unwrap_err();
        assert_eq!(
            words,
            "memory is full: it needs 2048 MiB, and 72 of 4096 MiB are free (3000 taken, 1024 kept for the host)"
        );
    }
}
