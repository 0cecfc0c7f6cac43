//! Kinds: shared words for what a box promises.
//!
//! A backend *offers* kinds; several may offer the same one, and then they agree on what a caller relies on
//! ([`disagreements`]). [`standard`] is the table of every kind there is; [`Wanted`] is what a caller asked for,
//! after aliases.

mod agree;
mod alias;
mod capability;

pub use agree::disagreements;
pub use alias::{Wanted, aliases};
pub use capability::{
    Arch, Capabilities, CommandAbility, ComputerUse, DisplayAbility, DisplayProtocol, Feature, Os, Shell,
};

use serde::Serialize;

use crate::id::KindId;

/// One row of the table of kinds: what every offer of the kind promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// The kind's ID.
    #[serde(rename = "kind")]
    pub name: &'static str,
    /// What it promises, for people.
    pub promise: &'static str,
    /// The guest's operating system.
    pub os: Os,
    /// The guest's architecture.
    pub arch: Arch,
    /// Whether a box takes a scarce GPU.
    pub gpu: bool,
    /// Whether a box has a desktop.
    pub desktop: bool,
}

impl Kind {
    /// The kind's ID, as a type.
    #[must_use]
    pub fn id(&self) -> KindId {
        // Cannot fail: a test parses every row of the table.
        KindId::parse(self.name).unwrap_or_else(|_| unreachable!("{} is a valid kind", self.name))
    }
}

const fn kind(
    name: &'static str,
    os: Os,
    arch: Arch,
    gpu: bool,
    desktop: bool,
    promise: &'static str,
) -> Kind {
    Kind { name, promise, os, arch, gpu, desktop }
}

/// Every kind, in the order in which people see them.
pub const STANDARD: &[Kind] = &[
    kind("linux", Os::Linux, Arch::X86_64, false, false, "Linux on x86_64, no GPU"),
    kind("linux-desktop", Os::Linux, Arch::X86_64, true, true, "a Linux desktop on a GPU"),
    kind("linux-desktop-cpu", Os::Linux, Arch::X86_64, false, true, "a Linux desktop drawn by the CPU"),
    kind(
        "linux-desktop-wayland-cpu",
        Os::Linux,
        Arch::X86_64,
        false,
        true,
        "a Linux desktop on Wayland, drawn by the CPU; X11-only apps do not run",
    ),
    kind("linux-arm64", Os::Linux, Arch::Arm64, false, false, "Linux on arm64"),
    kind("linux-arm64-desktop-cpu", Os::Linux, Arch::Arm64, false, true, "a Linux desktop on arm64"),
    kind("macos", Os::Macos, Arch::Arm64, false, false, "macOS"),
    kind("macos-desktop", Os::Macos, Arch::Arm64, false, true, "a macOS desktop"),
    kind("windows-desktop", Os::Windows, Arch::X86_64, false, true, "a Windows desktop on x86_64"),
    kind("windows-arm64-desktop", Os::Windows, Arch::Arm64, false, true, "a Windows desktop on arm64"),
];

/// The table's row for `id`, or `None` when there is no such kind.
#[must_use]
pub fn standard(id: &KindId) -> Option<&'static Kind> {
    STANDARD.iter().find(|kind| kind.name == id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_valid_id_and_stands_once() {
        for kind in STANDARD {
            assert_eq!(standard(&kind.id()), Some(kind));
            assert_eq!(STANDARD.iter().filter(|k| k.name == kind.name).count(), 1, "{}", kind.name);
        }
    }

    #[test]
    fn a_desktop_kind_says_so_and_an_unusual_architecture_too() {
        for kind in STANDARD {
            assert_eq!(kind.desktop, kind.name.contains("desktop"), "{}", kind.name);
            let usual = if kind.os == Os::Macos { Arch::Arm64 } else { Arch::X86_64 };
            assert_eq!(kind.arch != usual, kind.name.contains("arm64"), "{}", kind.name);
        }
    }
}
