//! Boxes as containers on a Docker Engine, through its HTTP API.
//!
//! A box is a container named `bbbox-<box ID>` whose labels, set at creation, say whose it is. Commands reach it
//! through the API's exec alone, so nothing needs a network path to a box. The images that boxes come from are
//! built on the engine itself, from the recipe in this crate.
//!
//! ```no_run
//! # fn main() -> bbbox_core::Result<()> {
//! use bbbox_core::id::BackendId;
//! use bbbox_docker::{Docker, DockerConfig};
//!
//! let backend = Docker::connect(BackendId::parse("docker")?, DockerConfig::default())?;
//! # drop(backend);
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]

mod acquire;
mod archive;
mod backend;
mod base;
mod change;
mod client;
mod config;
mod doctor;
mod exec;
mod fault;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod images;
mod map;
mod privilege;
mod recipe;
mod start;
mod transport;
mod variable;

pub use backend::Docker;
pub use config::DockerConfig;
