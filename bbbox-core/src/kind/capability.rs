//! What one offer of a kind can do, as data.

use std::{collections::BTreeSet, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A guest's operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Os {
    /// Linux.
    Linux,
    /// macOS.
    Macos,
    /// Windows.
    Windows,
}

/// A guest's architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Arch {
    /// 64-bit x86.
    #[serde(rename = "x86_64")]
    X86_64,
    /// 64-bit Arm.
    #[serde(rename = "arm64")]
    Arm64,
}

/// The shell that a box's commands are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Shell {
    /// POSIX sh.
    Sh,
    /// PowerShell 7.
    Powershell,
}

/// A word for something extra that a box has, such as `docker`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Feature(String);

impl Feature {
    /// Checks `word` and takes it as a feature.
    ///
    /// # Errors
    /// `Invalid` when it is not 1 to 40 characters of `a-z`, `0-9` and `-`.
    pub fn parse(word: impl Into<String>) -> Result<Self> {
        let word = word.into();
        let ok = (1..=40).contains(&word.len())
            && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if ok {
            Ok(Self(word))
        } else {
            Err(Error::invalid(format!("{word:?} is not a feature"))
                .fix("use 1 to 40 characters of a-z, 0-9 and '-'"))
        }
    }

    /// The feature as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Feature {
    type Error = Error;
    fn try_from(word: String) -> Result<Self> {
        Self::parse(word)
    }
}

impl From<Feature> for String {
    fn from(feature: Feature) -> Self {
        feature.0
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How commands run in a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandAbility {
    /// The transport's name for people, such as `SSH`.
    pub transport: String,
    /// The shell that scripts are written for.
    pub shell: Shell,
    /// Whether the box's user may become administrator.
    pub admin: bool,
    /// Whether a command runs in the logged-in desktop session as it is.
    pub in_desktop_session: bool,
    /// Whether output comes as it is written.
    pub streaming: bool,
}

/// The protocol that a display speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DisplayProtocol {
    /// RFB, the protocol of VNC.
    Rfb,
    /// Selkies: video over WebSockets.
    Selkies,
}

/// One display of a box, as far as a viewer must know before it connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisplayAbility {
    /// The display's ID, unique in its box.
    pub id: String,
    /// What it speaks.
    pub protocol: DisplayProtocol,
    /// Whether a viewer may change its size.
    pub resizable: bool,
}

/// The computer-use driver in a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputerUse {
    /// The driver's name.
    pub driver: String,
    /// The driver's version.
    pub version: String,
    /// Where it listens in the box.
    pub socket: String,
}

/// What an offer's boxes can do. Every ability is "no" until it is said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// The guest's operating system.
    pub os: Os,
    /// The guest's architecture.
    pub arch: Arch,
    /// Whether a box takes a scarce GPU.
    #[serde(default)]
    pub gpu: bool,
    /// Extras, such as `docker`.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
    /// How commands run, or `None` where none can.
    #[serde(default)]
    pub command: Option<CommandAbility>,
    /// The displays; empty without a desktop.
    #[serde(default)]
    pub displays: Vec<DisplayAbility>,
    /// The computer-use driver, if there is one.
    #[serde(default)]
    pub computer_use: Option<ComputerUse>,
    /// Whether a box may become a machine of the program around bb-box.
    #[serde(default)]
    pub enrol: bool,
}

impl Capabilities {
    /// A Linux guest on `arch` with a POSIX shell and nothing else.
    #[must_use]
    pub fn linux(arch: Arch, transport: &str) -> Self {
        Self {
            os: Os::Linux,
            arch,
            gpu: false,
            features: BTreeSet::new(),
            command: Some(CommandAbility {
                transport: transport.to_owned(),
                shell: Shell::Sh,
                admin: true,
                in_desktop_session: false,
                streaming: true,
            }),
            displays: Vec::new(),
            computer_use: None,
            enrol: false,
        }
    }

    /// What a box of the same kind can do that may come from something else than this: nothing but what the kind and
    /// its own `features` say.
    #[must_use]
    pub fn at_least(&self, features: &BTreeSet<Feature>) -> Self {
        Self {
            features: features.clone(),
            displays: Vec::new(),
            computer_use: None,
            enrol: false,
            ..self.clone()
        }
    }

    /// Whether the boxes have `feature`.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f.as_str() == feature)
    }
}
