//! One suite that holds every backend to the same promises.
//!
//! A backend's author implements [`Subject`], which says how a handle on the provider is made, and runs the suite:
//!
//! ```
//! use std::sync::Arc;
//! use bbbox::{backend::Backend, Result};
//! use conformance::{sim::Provider, Options, Subject};
//!
//! struct Mine(Arc<Provider>);
//!
//! impl Subject for Mine {
//!     fn backend(&self) -> Result<Arc<dyn Backend>> {
//!         Ok(self.0.backend())
//!     }
//! }
//!
//! # #[tokio::main] async fn main() -> Result<()> {
//! let subject = Arc::new(Mine(Provider::new(Default::default())?));
//! let only = Options { only: Some("held-".to_owned()), ..Options::default() };
//! let report = conformance::run(subject, only).await;
//! assert!(report.is_good(), "{report}");
//! # Ok(())
//! # }
//! ```
//!
//! Each [`Case`] names the promise that it holds a backend to; the promise stands in the docs of the interface. What
//! a backend does not declare is reported as skipped, with the reason, by ability and never by name.

#![deny(missing_docs)]

mod ability;
mod case;
mod cases;
mod faulty;
mod home;
mod lab;
mod report;
mod runner;
pub mod sim;
mod subject;
pub mod world;

pub use ability::Abilities;
pub use case::{Body, Case, Cost, Stop, Verdict};
pub use cases::all as cases;
pub use faulty::{Call, Fault, Faulty, Method, Plan};
pub use lab::Lab;
pub use report::{Outcome, Report, Told};
pub use runner::{Listener, Options, run};
pub use subject::{Known, Subject};
