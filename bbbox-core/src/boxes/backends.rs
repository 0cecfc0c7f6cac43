//! The configured backends, as far as they are known without asking their providers.

use serde::Serialize;

use super::{Boxes, Shared};
use crate::id::BackendId;

/// One configured backend.
#[derive(Clone, Debug, Serialize)]
pub struct BackendView {
    /// The backend.
    pub id: BackendId,
    /// Whether it takes new boxes.
    pub on: bool,
    /// Where its boxes are, in words, such as the address of a host.
    pub place: Option<String>,
    /// Why it cannot be used as it is configured.
    pub trouble: Option<String>,
}

impl Boxes {
    /// Every configured backend, those that work in the order in which they are tried. No provider is asked.
    #[must_use]
    pub fn backends(&self) -> Vec<BackendView> {
        view(&self.shared)
    }
}

pub(super) fn view(shared: &Shared) -> Vec<BackendView> {
    let registry = shared.world.registry();
    let built = registry.entries().map(|entry| BackendView {
        id: entry.backend.id().clone(),
        on: entry.on,
        place: entry.backend.place(),
        trouble: None,
    });
    let broken = registry.broken().iter().map(|(id, error)| BackendView {
        id: id.clone(),
        on: false,
        place: None,
        trouble: Some(error.in_a_line()),
    });
    built.chain(broken).collect()
}
