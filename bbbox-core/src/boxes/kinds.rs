//! What is offered now, for people and agents to choose from.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Shared;
use crate::{
    backend::Offer,
    id::BackendId,
    kind::{Capabilities, Feature, Kind, STANDARD, disagreements},
    size::Sizes,
};

/// What is offered now.
#[derive(Clone, Debug, Serialize)]
pub struct Kinds {
    /// Every kind that is offered.
    pub kinds: Vec<KindView>,
    /// The words of backends that did not say what they offer.
    pub troubles: Vec<String>,
}

/// One kind, as it is offered now.
#[derive(Clone, Debug, Serialize)]
pub struct KindView {
    /// The kind.
    #[serde(flatten)]
    pub kind: Kind,
    /// Whether it may be acquired.
    pub on: bool,
    /// Its sizes.
    pub sizes: Sizes,
    /// Who offers it, in the order in which they are tried.
    pub offers: Vec<KindOffer>,
}

/// One backend's offer of a kind.
#[derive(Clone, Debug, Serialize)]
pub struct KindOffer {
    /// The backend.
    pub backend: BackendId,
    /// Whether it takes new boxes.
    pub on: bool,
    /// How commands run there.
    pub transport: Option<String>,
    /// What its boxes have beyond the kind.
    pub features: BTreeSet<Feature>,
    /// Seconds that an acquire may take.
    pub ready_seconds: u64,
    /// Where it promises otherwise than the kind, or than the kind's first offer.
    pub disagrees: Vec<String>,
}

/// Asks every backend what it offers.
pub(super) async fn view(shared: &Shared) -> Kinds {
    let registry = shared.world.registry();
    let (mut offered, mut troubles) = (Vec::new(), Vec::new());
    for entry in registry.entries() {
        match entry.backend.offers().await {
            Ok(offers) => {
                offered.extend(offers.into_iter().map(|o| (entry.backend.id().clone(), entry.on, o)))
            }
            Err(error) => troubles.push(format!("{}: {}", entry.backend.id(), error.chain())),
        }
    }
    troubles.extend(registry.broken().iter().map(|(id, error)| format!("{id}: {}", error.chain())));
    let document = shared.settings.document();
    let views = STANDARD.iter().filter_map(|kind| {
        let mut mine: Vec<_> = offered.iter().filter(|(_, _, o)| o.kind.as_str() == kind.name).collect();
        // Those that start slower or cost by the minute are tried last.
        mine.sort_by_key(|(_, _, offer)| offer.last);
        let first = mine.first().map(|(_, _, offer)| &offer.capabilities);
        let offers: Vec<_> = mine.iter().map(|(id, on, offer)| of(kind, id, *on, offer, first)).collect();
        if offers.is_empty() {
            return None;
        }
        let id = kind.id();
        Some(KindView { kind: *kind, on: document.kind_on(&id), sizes: document.sizes(&id), offers })
    });
    Kinds { kinds: views.collect(), troubles }
}

fn of(kind: &Kind, backend: &BackendId, on: bool, offer: &Offer, first: Option<&Capabilities>) -> KindOffer {
    KindOffer {
        backend: backend.clone(),
        on,
        transport: offer.capabilities.command.as_ref().map(|c| c.transport.clone()),
        features: offer.capabilities.features.clone(),
        ready_seconds: offer.ready_timeout.as_secs(),
        disagrees: disagreements(kind, &offer.capabilities, first),
    }
}
