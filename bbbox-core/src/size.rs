//! A box's size, and the sizes a kind allows.

use std::{collections::BTreeMap, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    kind::Os,
};

/// The least memory a Linux box may have, in MiB: less, and package installs are killed.
pub const LINUX_FLOOR_MIB: u64 = 2048;

/// Cores, memory and root disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Whole CPU cores.
    #[schemars(range(min = 1, max = 256))]
    pub cores: u32,
    /// Memory in MiB.
    #[schemars(range(min = 128, max = 4_194_304))]
    pub memory_mib: u64,
    /// Root disk in MiB; `None` leaves it to the offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 67_108_864))]
    pub disk_mib: Option<u64>,
}

impl Size {
    /// A size with `cores` and `memory_mib`, its disk left to the offer.
    #[must_use]
    pub const fn new(cores: u32, memory_mib: u64) -> Self {
        Self { cores, memory_mib, disk_mib: None }
    }

    /// This size; where it names no disk, with the disk of `other`.
    #[must_use]
    pub(crate) fn or_disk_of(self, other: &Self) -> Self {
        Self { disk_mib: self.disk_mib.or(other.disk_mib), ..self }
    }

    /// Whether each part is at most `largest`'s. A disk is only held against a limit that names one.
    #[must_use]
    pub fn fits_in(&self, largest: &Self) -> bool {
        self.cores <= largest.cores
            && self.memory_mib <= largest.memory_mib
            && match (self.disk_mib, largest.disk_mib) {
                (Some(disk), Some(most)) => disk <= most,
                _ => true,
            }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = if self.cores == 1 { "core" } else { "cores" };
        write!(f, "{} {cores}, {}", self.cores, Mib(self.memory_mib))?;
        self.disk_mib.map_or(Ok(()), |disk| write!(f, ", {} disk", Mib(disk)))
    }
}

/// Shows MiB as people write it: GiB where it comes out even.
struct Mib(u64);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 % 1024, self.0 % 512) {
            (0, _) => write!(f, "{} GiB", self.0 / 1024),
            (_, 0) => write!(f, "{}.5 GiB", self.0 / 1024),
            _ => write!(f, "{} MiB", self.0),
        }
    }
}

/// What a caller asks for: one of the kind's presets by name, or a size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SizeChoice {
    /// A preset of the kind: `small`, `medium` or `large`.
    Preset(String),
    /// A size of the caller's own.
    Custom(Size),
}

impl FromStr for SizeChoice {
    type Err = Error;

    /// Reads a preset's name, or `cores=2,memory=4GiB,disk=20GiB` (the disk may be left out).
    fn from_str(text: &str) -> Result<Self> {
        if !text.contains('=') {
            return Ok(Self::Preset(text.to_owned()));
        }
        let bad = |why: String| Error::invalid(why).fix("write a preset, or cores=2,memory=4GiB,disk=20GiB");
        let (mut cores, mut memory, mut disk) = (None, None, None);
        for part in text.split(',') {
            let (name, value) = part
                .trim()
                .split_once('=')
                .ok_or_else(|| bad(format!("{part:?} is not a part of a size")))?;
            let twice = match name {
                "cores" => {
                    let n = value.parse::<u32>().ok().filter(|n| *n > 0);
                    cores
                        .replace(n.ok_or_else(|| bad(format!("{value:?} is not a number of cores")))?)
                        .is_some()
                }
                "memory" => memory.replace(parse_mib(value)?).is_some(),
                "disk" => disk.replace(parse_mib(value)?).is_some(),
                _ => return Err(bad(format!("a size has no {name:?}"))),
            };
            if twice {
                return Err(bad(format!("the size says {name} twice")));
            }
        }
        match (cores, memory) {
            (Some(cores), Some(memory_mib)) => Ok(Self::Custom(Size { cores, memory_mib, disk_mib: disk })),
            _ => Err(bad(format!("the size {text:?} needs cores and memory"))),
        }
    }
}

/// Reads `2048MiB`, `4GiB` or `1TiB` as MiB.
///
/// # Errors
/// `Invalid` for anything else, nothing included.
pub fn parse_mib(text: &str) -> Result<u64> {
    let bad =
        || Error::invalid(format!("{text:?} is not an amount")).fix("write it as 2048MiB, 4GiB or 1TiB");
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let (digits, factor) = [("MiB", 1), ("GiB", 1024), ("TiB", 1024 * 1024)]
        .iter()
        .find_map(|(unit, factor)| compact.strip_suffix(unit).map(|digits| (digits, *factor)))
        .ok_or_else(bad)?;
    let whole: u64 = digits.parse().map_err(|_| bad())?;
    whole.checked_mul(factor).filter(|mib| *mib > 0).ok_or_else(bad)
}

/// The sizes a kind allows: the same on every offer of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Sizes with names.
    pub presets: BTreeMap<String, Size>,
    /// The preset taken when none is asked for.
    pub default: String,
    /// The largest size that may be asked for.
    pub largest: Size,
}

impl Sizes {
    /// What a kind allows when the configuration says nothing.
    #[must_use]
    pub fn standard(desktop: bool) -> Self {
        let sizes = if desktop {
            [Size::new(2, 4096), Size::new(4, 8192), Size::new(8, 16384)]
        } else {
            [Size::new(1, 2048), Size::new(2, 4096), Size::new(4, 8192)]
        };
        Self {
            presets: ["small", "medium", "large"].into_iter().map(str::to_owned).zip(sizes).collect(),
            default: "medium".to_owned(),
            largest: Size { cores: 32, memory_mib: 131_072, disk_mib: Some(1_048_576) },
        }
    }

    /// The size that `choice` means for a kind on `os`; `None` is the default.
    ///
    /// # Errors
    /// `Invalid` for a preset that is not there, a size above the largest, and less than the floor on Linux.
    pub fn resolve(&self, choice: Option<&SizeChoice>, os: Os) -> Result<Size> {
        let size = match choice {
            Some(SizeChoice::Custom(size)) => *size,
            Some(SizeChoice::Preset(name)) => *self.presets.get(name).ok_or_else(|| {
                let names: Vec<_> = self.presets.keys().map(String::as_str).collect();
                Error::invalid(format!("there is no size {name:?}"))
                    .fix(format!("use one of {}, or cores=2,memory=4GiB", names.join(", ")))
            })?,
            None => *self.presets.get(&self.default).ok_or_else(|| {
                Error::invalid(format!("the default size {:?} is not a preset", self.default))
            })?,
        };
        if size.cores == 0 || size.memory_mib == 0 || size.disk_mib == Some(0) {
            return Err(
                Error::invalid(format!("{size} is not a size")).fix("give at least one core and some memory")
            );
        }
        if !size.fits_in(&self.largest) {
            return Err(Error::invalid(format!(
                "{size} is larger than this kind's largest size, {}",
                self.largest
            ))
            .fix("ask for less, or raise the kind's largest size in the configuration"));
        }
        if os == Os::Linux && size.memory_mib < LINUX_FLOOR_MIB {
            return Err(Error::invalid(format!("{size} is too little memory for Linux"))
                .fix("ask for at least 2 GiB"));
        }
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_size_is_read_as_people_write_it() {
        let custom = |cores, memory_mib, disk_mib| SizeChoice::Custom(Size { cores, memory_mib, disk_mib });
        assert_eq!("small".parse::<SizeChoice>().unwrap(), SizeChoice::Preset("small".into()));
        assert_eq!("cores=2,memory=4GiB".parse::<SizeChoice>().unwrap(), custom(2, 4096, None));
        assert_eq!(
            "cores=2, memory=4 GiB,disk=20GiB".parse::<SizeChoice>().unwrap(),
            custom(2, 4096, Some(20480))
        );
        for bad in [
            "cores=2",
            "cores=0,memory=2GiB",
            "cores=2,memory=4",
            "cores=2,cores=3,memory=1GiB",
            "cores=2,ram=1GiB",
            "cores=1,memory=99999999999999999999GiB",
        ] {
            let error = bad.parse::<SizeChoice>().unwrap_err();
            assert!(error.how_to_fix().is_some(), "{bad}");
        }
    }

    #[test]
    fn the_floor_the_largest_and_the_presets_hold() {
        let sizes = Sizes::standard(false);
        assert_eq!(sizes.resolve(None, Os::Linux).unwrap(), Size::new(2, 4096));
        let custom = |cores, mib| SizeChoice::Custom(Size::new(cores, mib));
        assert!(sizes.resolve(Some(&custom(1, 2047)), Os::Linux).is_err());
        assert!(sizes.resolve(Some(&custom(1, 2047)), Os::Macos).is_ok());
        assert!(sizes.resolve(Some(&custom(33, 4096)), Os::Linux).is_err());
        assert!(sizes.resolve(Some(&SizeChoice::Preset("huge".into())), Os::Linux).is_err());
    }

    proptest! {
        #[test]
        fn reading_never_panics(text: String) {
            let _ = text.parse::<SizeChoice>();
        }
    }
}
