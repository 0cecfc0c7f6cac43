//! How the reference backend is set up. Reads neither the environment nor the disk.

use std::{path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Local;
use crate::{
    Result,
    backend::Backend,
    config::{Amount, Problem},
    driver::{DriverDeps, Settings},
    id::BackendId,
};

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LocalConfig {
    /// The folder that holds the guests: an absolute path, made when it is missing. Installs may share it. Left out,
    /// it is a folder of the program's own.
    pub dir: Option<PathBuf>,
    /// Whether boxes must be kept apart from this machine.
    pub isolation: Isolation,
    /// Memory that running boxes may be promised together. Left out, it is this machine's, less `memory-reserve`, and
    /// at least 8 GiB.
    pub memory: Option<Amount>,
    /// Memory of this machine that is kept from boxes where `memory` is left out: 1 GiB when this is left out too.
    pub memory_reserve: Option<Amount>,
    /// How many boxes there may be, running or stopped, of every install together. No bound when it is left out.
    #[schemars(range(min = 1))]
    pub most_boxes: Option<u32>,
}

impl LocalConfig {
    /// A configuration with its guests below `dir`, and every default.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: Some(dir.into()), ..Self::default() }
    }
}

impl Settings for LocalConfig {
    const TYPE: &'static str = "local";

    fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if let Some(dir) = self.dir.as_ref().filter(|dir| !dir.is_absolute()) {
            problems.push(Problem::new("dir", format!("is {}", dir.display())).allowed("an absolute path"));
        }
        if self.most_boxes == Some(0) {
            problems.push(Problem::new("most-boxes", "is 0").allowed("a whole number from 1"));
        }
        problems
    }

    fn alone(&self) -> Option<String> {
        // Two backends on one folder would each list the other's guests as its own.
        let dir =
            self.dir.as_ref().map_or("the program's own folder".to_owned(), |dir| dir.display().to_string());
        Some(format!("the folder of guests ({dir})"))
    }

    fn build(mut self, id: BackendId, deps: &DriverDeps) -> Result<Arc<dyn Backend>> {
        self.dir.get_or_insert_with(|| deps.data_dir.join("local"));
        Ok(Arc::new(Local::open(id, self)?))
    }
}
