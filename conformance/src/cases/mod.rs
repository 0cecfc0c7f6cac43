//! Every case, by what it is about.

mod acquire;
mod change;
mod copies;
mod exits;
mod inside;
mod life;
mod listing;
mod lost;
mod owners;
mod power;
mod release;
mod room;
mod runs;
mod streams;
mod sweep;

use crate::case::Case;

/// Every case, in the order in which a report shows them.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        listing::CASES,
        acquire::CASES,
        owners::CASES,
        release::CASES,
        power::CASES,
        change::CASES,
        streams::CASES,
        exits::CASES,
        inside::CASES,
        life::CASES,
        runs::CASES,
        copies::CASES,
        sweep::CASES,
        lost::CASES,
        room::CASES,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        for case in all() {
            assert!(names.insert(case.name), "two cases are called {}", case.name);
            assert!(case.limit.as_secs() > 0, "{} has no time", case.name);
        }
    }
}
