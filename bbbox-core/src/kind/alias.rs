//! What a caller may write for a kind: the kind, or an older or narrower word for it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Feature, STANDARD, standard};
use crate::{
    config::nearest,
    error::{Error, Result},
    id::KindId,
};

/// `(alias, kind, the feature it asks for)`.
const ALIASES: &[(&str, &str, Option<&str>)] = &[
    ("linux-docker", "linux", Some("docker")),
    ("linux-arm64-docker", "linux-arm64", Some("docker")),
    ("linux-vm", "linux", Some("kernel")),
    ("linux-kvm", "linux", Some("kvm")),
    ("linux-headless", "linux", None),
    ("linux-headless-docker", "linux", None),
];

/// Every alias with the kind it stands for and the feature it asks for.
pub fn aliases() -> impl Iterator<Item = (&'static str, &'static str, Option<&'static str>)> {
    ALIASES.iter().copied()
}

/// A kind and the features that an offer must have to serve it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The kind.
    pub kind: KindId,
    /// What the offer must have.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
}

impl Wanted {
    /// Resolves a kind or an alias as a caller writes it.
    ///
    /// # Errors
    /// `Invalid` when there is no such kind; the words list those there are.
    pub fn parse(word: &str) -> Result<Self> {
        let (kind, feature) = match ALIASES.iter().find(|(alias, ..)| *alias == word) {
            Some((_, kind, feature)) => (*kind, *feature),
            None => (word, None),
        };
        let known = KindId::parse(kind).ok().filter(|id| standard(id).is_some());
        let Some(kind) = known else {
            let all: Vec<_> =
                STANDARD.iter().map(|k| k.name).chain(ALIASES.iter().map(|(a, ..)| *a)).collect();
            let near = nearest(word, all.iter().copied());
            let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            return Err(Error::invalid(format!("there is no kind {word:?}{near}"))
                .fix(format!("use one of {}", all.join(", "))));
        };
        Ok(Self { kind, features: feature.map(Feature::parse).transpose()?.into_iter().collect() })
    }

    /// Whether an offer with `features` serves this.
    #[must_use]
    pub fn served_by(&self, features: &BTreeSet<Feature>) -> bool {
        self.features.is_subset(features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_take_only_offers_with_their_feature() {
        let wanted = Wanted::parse("linux-docker").unwrap();
        assert_eq!(wanted.kind.as_str(), "linux");
        assert!(!wanted.served_by(&BTreeSet::new()));
        assert!(wanted.served_by(&[Feature::parse("docker").unwrap()].into()));
    }

    #[test]
    fn the_two_old_ids_are_plain_linux() {
        for old in ["linux-headless", "linux-headless-docker"] {
            assert_eq!(Wanted::parse(old).unwrap(), Wanted::parse("linux").unwrap());
        }
    }

    #[test]
    fn an_unknown_kind_lists_those_there_are() {
        let error = Wanted::parse("beos").unwrap_err();
        assert!(
            error.how_to_fix().is_some_and(|f| f.contains("linux-desktop-cpu") && f.contains("linux-vm"))
        );
    }

    #[test]
    fn a_kind_that_is_misspelt_is_guessed() {
        for (word, meant) in [("linx", "linux"), ("linux-dokcer", "linux-docker")] {
            let error = Wanted::parse(word).unwrap_err().to_string();
            assert!(error.ends_with(&format!("; did you mean {meant}?")), "{error}");
        }
        assert!(!Wanted::parse("beos").unwrap_err().to_string().contains("mean"));
    }

    #[test]
    fn every_alias_stands_for_a_kind() {
        for (alias, ..) in aliases() {
            Wanted::parse(alias).unwrap();
            assert!(standard(&KindId::parse(alias).unwrap()).is_none(), "{alias} is a kind and an alias");
        }
    }
}
