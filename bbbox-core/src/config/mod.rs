//! The configuration: one checked document with a revision.
//!
//! It lists the backends in the order in which they are tried, and what is set about kinds. People keep it as TOML,
//! interfaces pass the same document as JSON, and its JSON Schema is published ([`Drivers::config_schema`]). A check
//! says every problem at once, each with its field's path and what is allowed there; the storage takes a document only
//! while the revision it was made from is still the newest. There is no secret in it.
//!
//! An amount is text in both forms, `"4 GiB"` ([`Amount`]); a size is `{ cores = 2, memory = "4 GiB" }`.
//!
//! [`Drivers::config_schema`]: crate::driver::Drivers::config_schema

mod amount;
mod check;
mod document;
mod json;
mod problem;
pub(crate) mod schema;
mod shape;
mod stored;
mod text;

pub use amount::{Amount, WrittenSize};
pub use check::{Draft, check_text, check_value};
pub use document::{BackendEntry, Document, KindEntry};
pub(crate) use problem::nearest;
pub use problem::{Problem, Problems};
pub use stored::{Applied, Change, Stored};
pub(crate) use stored::{load, save_if};

#[cfg(test)]
mod tests;
