//! Machines of their own for AI coding agents: containers, VMs and hosts behind one interface.
//!
//! This crate is the core with a feature for each backend; none is on by default.
//!
//! ```no_run
//! # #[cfg(feature = "local")]
//! # async fn example() -> bbbox::Result<()> {
//! use bbbox::{boxes::{Acquire, Boxes}, run::JobSpec};
//!
//! let boxes = Boxes::builder().data("my-boxes").drivers(bbbox::drivers()).open()?;
//! let machine = boxes.acquire(Acquire::kind("linux")).await?;
//! let result = machine.run(JobSpec::script("uname -a")).await?;
//! println!("{result:?}");
//! machine.release(false).await?;
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs)]

pub use bbbox_core::*;
#[cfg(feature = "docker")]
pub use bbbox_docker as docker;

/// The types of backends that this build has, in the order in which they are tried when nothing is configured.
#[must_use]
pub fn drivers() -> driver::Drivers {
    let drivers = driver::Drivers::new();
    #[cfg(feature = "docker")]
    let drivers = drivers.with::<docker::DockerConfig>();
    #[cfg(feature = "local")]
    let drivers = drivers.with::<local::LocalConfig>();
    drivers
}
