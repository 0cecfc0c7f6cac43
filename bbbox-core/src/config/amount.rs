//! An amount of memory or disk as the configuration writes it: `"4 GiB"`, in TOML and in JSON alike.
//!
//! The canonical form is a whole number, a space and the largest unit that comes out even. Records and the JSON of
//! boxes use plain MiB ([`crate::size::Size`]); only what people write and read in a configuration is text.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    size::{Size, parse_mib},
};

/// The most an amount may be: 64 TiB, above any disk or memory there is, and far below where sums overflow.
const MOST_MIB: u64 = 64 << 20;

/// An amount of memory or disk, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Amount(u64);

impl Amount {
    /// An amount of `mib` MiB.
    ///
    /// # Errors
    /// `Invalid` for nothing and for more than 64 TiB.
    pub fn from_mib(mib: u64) -> Result<Self> {
        if (1..=MOST_MIB).contains(&mib) {
            Ok(Self(mib))
        } else {
            Err(Error::invalid(format!("{mib} MiB is not an amount")).fix("use 1 MiB to 64 TiB"))
        }
    }

    /// The amount in MiB.
    #[must_use]
    pub const fn mib(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (factor, unit) = [(1 << 20, "TiB"), (1 << 10, "GiB")]
            .into_iter()
            .find(|(factor, _)| self.0.is_multiple_of(*factor))
            .unwrap_or((1, "MiB"));
        write!(f, "{} {unit}", self.0 / factor)
    }
}

impl FromStr for Amount {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::from_mib(parse_mib(text)?)
    }
}

impl TryFrom<String> for Amount {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Amount> for String {
    fn from(amount: Amount) -> Self {
        amount.to_string()
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "amount",
            "pattern": "^\\s*[0-9]+\\s*(MiB|GiB|TiB)\\s*$",
            "examples": ["512 MiB", "4 GiB"],
        })
    }
}

/// A size as the configuration writes it: `{ cores = 2, memory = "4 GiB" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WrittenSize {
    /// Whole CPU cores.
    #[schemars(range(min = 1, max = 256))]
    pub cores: u32,
    /// Memory.
    pub memory: Amount,
    /// The root disk; left out, it is the offer's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Amount>,
}

impl From<WrittenSize> for Size {
    fn from(written: WrittenSize) -> Self {
        Self {
            cores: written.cores,
            memory_mib: written.memory.mib(),
            disk_mib: written.disk.map(Amount::mib),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_amount_reads_back_what_it_writes(mib in 1..=MOST_MIB) {
            let amount = Amount::from_mib(mib).unwrap();
            prop_assert_eq!(amount.to_string().parse::<Amount>().unwrap(), amount);
        }

        #[test]
        fn reading_an_amount_never_panics(text: String) {
            let _ = text.parse::<Amount>();
        }
    }

    #[test]
    fn an_amount_is_written_in_its_largest_even_unit() {
        for (mib, words) in [(512, "512 MiB"), (1536, "1536 MiB"), (4096, "4 GiB"), (2 << 20, "2 TiB")] {
            assert_eq!(Amount::from_mib(mib).unwrap().to_string(), words);
        }
        assert!("0 GiB".parse::<Amount>().is_err());
        assert!("65 TiB".parse::<Amount>().is_err());
        assert!("4 GB".parse::<Amount>().is_err());
    }
}
