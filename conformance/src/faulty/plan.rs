//! Which calls fail, and how: by a script, or by chance from a seed.

use std::{collections::BTreeMap, time::Duration};

/// A call that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is the method of that name")]
pub enum Method {
    Offers,
    Capacity,
    Acquire,
    Release,
    Power,
    Held,
    Reach,
    Start,
    Stop,
    Resize,
    Relabel,
}

impl Method {
    /// The calls that change something.
    pub const CHANGES: [Self; 6] =
        [Self::Acquire, Self::Release, Self::Start, Self::Stop, Self::Resize, Self::Relabel];
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done, and the answer is `Unavailable` with effect `None`.
    Before,
    /// It is done, and the answer is lost: `Unavailable` with effect `Unknown`.
    Lost,
    /// It is done, and something at its end went wrong for good: `Failed` with effect `Applied`.
    Broken,
    /// It begins this much later.
    Late(Duration),
}

/// Which calls fail.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The calls of each method so far.
    counts: BTreeMap<Method, usize>,
    script: Vec<(Method, usize, Fault)>,
    always: Vec<(Method, Fault)>,
    chance: Option<Chance>,
}

#[derive(Clone, Debug)]
struct Chance {
    state: u64,
    /// Of 1,000 calls, how many fail in one of three ways.
    per_mille: u64,
}

impl Plan {
    /// Nothing fails.
    #[must_use]
    pub fn calm() -> Self {
        Self::default()
    }

    /// The call number `nth` of `method`, counted from 0, meets `fault`.
    #[must_use]
    pub fn at(mut self, method: Method, nth: usize, fault: Fault) -> Self {
        self.script.push((method, nth, fault));
        self
    }

    /// Every call of `method` meets `fault`.
    #[must_use]
    pub fn always(mut self, method: Method, fault: Fault) -> Self {
        self.always.push((method, fault));
        self
    }

    /// Of 1,000 calls that change something, `per_mille` fail, in a way that `seed` decides.
    #[must_use]
    pub fn seeded(seed: u64, per_mille: u64) -> Self {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { chance: Some(Chance { state, per_mille }), ..Self::default() }
    }

    /// What the next call of `method` meets.
    pub(super) fn next(&mut self, method: Method) -> Option<Fault> {
        let count = self.counts.entry(method).or_default();
        let nth = std::mem::replace(count, *count + 1);
        let scripted =
            self.script.iter().find(|(of, at, _)| *of == method && *at == nth).map(|(.., fault)| *fault);
        let always = || self.always.iter().find(|(of, _)| *of == method).map(|(_, fault)| *fault);
        scripted.or_else(always).or_else(|| self.chance.as_mut()?.next(method))
    }
}

impl Chance {
    fn draw(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) % below
    }

    fn next(&mut self, method: Method) -> Option<Fault> {
        if !Method::CHANGES.contains(&method) || self.draw(1000) >= self.per_mille {
            return None;
        }
        Some(match self.draw(3) {
            0 => Fault::Before,
            1 => Fault::Lost,
            _ => Fault::Late(Duration::from_millis(1 + self.draw(50))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_calls_by_their_number() {
        let mut plan = Plan::calm().at(Method::Release, 1, Fault::Lost).always(Method::Held, Fault::Before);
        assert_eq!(plan.next(Method::Release), None);
        assert_eq!(plan.next(Method::Power), None);
        assert_eq!(plan.next(Method::Release), Some(Fault::Lost));
        assert_eq!(plan.next(Method::Release), None);
        assert_eq!([(); 3].map(|()| plan.next(Method::Held)), [Some(Fault::Before); 3]);
    }

    #[test]
    fn a_seed_is_the_same_chance_again() {
        let drawn = |seed| {
            let mut plan = Plan::seeded(seed, 300);
            (0..1000).map(|_| plan.next(Method::Acquire)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(5), drawn(5));
        assert_ne!(drawn(5), drawn(6));
        let faults = drawn(5).into_iter().flatten().count();
        assert!((200..400).contains(&faults), "{faults} of 1,000");
    }
}
