//! The core of bb-box: what happens to a box, in what order, and what is recorded.
//!
//! The core names no provider. A provider is a [`backend::Backend`]; everything that does not depend on one is
//! here, once.

#![deny(missing_docs)]

pub mod backend;
pub mod boxes;
pub mod capacity;
pub mod config;
pub mod display;
pub mod driver;
pub mod embed;
pub mod env;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod guest;
pub mod id;
pub mod journal;
pub mod kind;
mod life;
#[cfg(all(feature = "local", target_os = "linux"))]
pub mod local;
mod reach;
pub mod record;
mod records;
mod registry;
pub mod route;
pub mod run;
pub mod signals;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod size;
pub mod store;
pub mod sweep;
pub mod transport;
mod world;

pub use error::{Effect, Error, ErrorKind, Result};
