//! How the reference backend is set up. Reads neither the environment nor the disk.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether boxes must be kept apart from this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Namespaces where the machine grants them, else none, and that is said.
    #[default]
    Auto,
    /// Namespaces, or no boxes.
    Required,
    /// None: a box's commands run on this machine as they are.
    None,
}

/// The reference backend's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LocalConfig {
    /// The folder that holds the guests: an absolute path, made when it is missing. Installs may share it.
    pub dir: PathBuf,
    /// Whether boxes must be kept apart from this machine.
    #[serde(default)]
    pub isolation: Isolation,
    /// Memory that running boxes may be promised together, in MiB. Default: this machine's, less `reserve-mib`.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub memory_mib: Option<u64>,
    /// Memory of this machine that is kept from boxes when `memory-mib` is not said, in MiB. Default: 1024.
    #[serde(default = "reserve")]
    pub reserve_mib: u64,
    /// The most guests there may be, running or stopped, of all installs. Default: no limit.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub guests: Option<u32>,
}

fn reserve() -> u64 {
    1024
}

impl LocalConfig {
    /// A configuration with its guests below `dir`, and every default.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            isolation: Isolation::Auto,
            memory_mib: None,
            reserve_mib: reserve(),
            guests: None,
        }
    }

    /// Every problem, each with its field; empty when there is none.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.dir.is_absolute() {
            problems.push(format!("dir: {:?} is not an absolute path", self.dir));
        }
        if self.memory_mib == Some(0) {
            problems.push("memory-mib: 0 leaves no room for a box; give at least 1".to_owned());
        }
        if self.guests == Some(0) {
            problems.push("guests: 0 allows no box; give at least 1".to_owned());
        }
        problems
    }
}
