//! Which call meets which fault: by chance from the seed, each call for itself.

use super::parts::Parts;

/// What becomes of one call of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing is done, and the caller is told so.
    Refused,
    /// It is done, and the answer is lost.
    Lost,
    /// The answer is lost, and it is done so many milliseconds after the caller was told.
    Late(u64),
    /// It takes so many milliseconds.
    Slow(u64),
    /// Nothing is done, and the provider says never.
    Broken,
    /// A listing lacks some guests.
    Partial,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nature {
    Reads,
    /// What a listing holds; that it is asked for is another call.
    Lists,
    Changes,
}

impl Fault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Lost => "answer lost",
            Self::Late(_) => "done late",
            Self::Slow(_) => "slow",
            Self::Broken => "broken",
            Self::Partial => "in part",
        }
    }
}

impl Parts {
    /// The fault of this call, if it meets one. It is noted.
    pub(super) fn fault_for(&mut self, method: &str, about: &str, nature: Nature) -> Option<Fault> {
        if self.calm {
            return None;
        }
        let name = format!("{method} of {about}");
        let (chance, nth) = self.chance.draw(&name);
        let name = format!("{name} #{nth}");
        let w = &self.schedule.weather;
        let changes = if nature == Nature::Changes { 1 } else { 0 };
        let (lists, calls) = if nature == Nature::Lists { (1, 0) } else { (0, 1) };
        let more = chance / 1000;
        let table = [
            (w.refused * calls, Fault::Refused),
            (w.lost * calls, Fault::Lost),
            (w.late * changes, Fault::Late(100 + more % 60_000)),
            (w.slow * calls, Fault::Slow(3_000 + more % 57_000)),
            (w.broken * changes, Fault::Broken),
            (w.partial * lists, Fault::Partial),
        ];
        let mut left = chance % 1000;
        for (share, fault) in table {
            if left < share {
                if self.schedule.mute.contains(&name) {
                    return None;
                }
                self.fault(&format!("{method} {}", fault.name()));
                self.note("fault", &format!("{name}: {}", fault.name()));
                return Some(fault);
            }
            left -= share;
        }
        None
    }
}
