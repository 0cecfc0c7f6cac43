//! The check that offers of one kind promise the same.

use super::{Capabilities, Kind};

/// What `offer` of `kind` promises otherwise than the kind or `other`, an offer of the same kind.
///
/// Offers agree on what a caller relies on: the operating system, the architecture, the GPU, the computer-use
/// driver, enrolment and whether there is a desktop. An offer may *add* features.
#[must_use]
pub fn disagreements(kind: &Kind, offer: &Capabilities, other: Option<&Capabilities>) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |what: &str, differs: bool| {
        if differs {
            found.push(what.to_owned());
        }
    };
    check("os", offer.os != kind.os);
    check("arch", offer.arch != kind.arch);
    check("gpu", offer.gpu != kind.gpu);
    check("desktop", offer.displays.is_empty() == kind.desktop);
    if let Some(other) = other {
        let driver = |c: &Capabilities| c.computer_use.as_ref().map(|u| u.driver.clone());
        check("computer-use driver", driver(offer) != driver(other));
        check("enrol", offer.enrol != other.enrol);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{Arch, Feature, standard};

    #[test]
    fn an_offer_may_add_features_and_nothing_else() {
        let kind = standard(&crate::id::KindId::parse("linux").unwrap()).unwrap();
        let plain = Capabilities::linux(Arch::X86_64, "one");
        let mut more = Capabilities::linux(Arch::X86_64, "another");
        more.features.insert(Feature::parse("docker").unwrap());
        assert!(disagreements(kind, &more, Some(&plain)).is_empty());
        more.enrol = true;
        more.arch = Arch::Arm64;
        assert_eq!(disagreements(kind, &more, Some(&plain)), ["arch", "enrol"]);
    }
}
