//! A guest: a backend's handle on the machine of one box, and what the provider records about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    id::{BoxId, BoxName, InstallId, KindId, ThreadId},
    kind::Feature,
    size::Size,
};

/// Whose a guest is: recorded at the provider when it is made, so that records can be rebuilt from there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The install that made it. A backend acts on no other install's guests.
    pub install: InstallId,
    /// The box it is.
    #[serde(rename = "box")]
    pub box_id: BoxId,
    /// The thread that has the box, if one has.
    #[serde(default)]
    pub thread: Option<ThreadId>,
    /// The box's name.
    pub name: BoxName,
    /// The box's kind.
    pub kind: KindId,
    /// What the box was asked to have beyond its kind.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
}

/// A backend's handle on one box's machine. Kept with the box's record; never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// The install it belongs to.
    pub install: InstallId,
    /// The box it is. A reference alone proves nothing: providers use them again.
    #[serde(rename = "box")]
    pub box_id: BoxId,
    /// The provider's reference, such as a container's ID.
    pub reference: String,
    /// Which of the backend's hosts it is on.
    #[serde(default)]
    pub host: Option<String>,
    /// Its address, where it has one that matters.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// Its size as it was made.
    pub size: Size,
    /// Small values that the backend needs later.
    #[serde(default)]
    pub data: BTreeMap<String, String>,
    /// What people see about it, such as its isolation or its image.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

/// In a guest's data: when its provider says that it was made, where a backend knows.
pub const MADE: &str = "made";

impl Guest {
    /// When its provider says that it was made, where its backend recorded that in its data under [`MADE`].
    #[must_use]
    pub fn made(&self) -> Option<Timestamp> {
        self.data.get(MADE)?.parse().ok()
    }
}

/// Whether a guest runs, as its provider says now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    /// It runs.
    Running,
    /// It is stopped, and its disk is kept.
    Stopped,
    /// It stands still with all that runs in it, by a person's hand at its provider: it answers nothing until it goes on.
    Paused,
    /// The provider cannot say now.
    Unknown,
}

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
            Self::Unknown => "unknown",
        })
    }
}

/// One guest as the provider lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The owner that is recorded at the provider.
    pub owner: Owner,
    /// The handle.
    pub guest: Guest,
}

/// Why a guest is stopped when bb-box did not stop it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopCause {
    /// Whether the guest chose it, as by a shutdown from inside. If not, the box may be started again.
    pub by_guest: bool,
    /// The provider's words, for people.
    pub words: String,
}
