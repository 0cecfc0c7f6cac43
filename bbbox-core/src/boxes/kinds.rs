//! What is offered now, for people and agents to choose from.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde::Serialize;

use super::{BackendView, Shared, backends};
use crate::{
    backend::Offer,
    id::BackendId,
    kind::{Capabilities, Feature, Kind, STANDARD, disagreements},
    registry::{ANSWER, Entry, told, within},
    size::Sizes,
};

/// What is offered now.
#[derive(Clone, Debug, Serialize)]
pub struct Kinds {
    /// Every kind that is offered.
    pub kinds: Vec<KindView>,
    /// The configured backends, in the order in which they are tried.
    pub backends: Vec<BackendView>,
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
    /// Where its boxes are, in words, such as the address of a host.
    pub place: Option<String>,
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
    let env = &*shared.world.env;
    let asked = registry
        .entries()
        .map(|entry| async move { (entry, within(env, ANSWER, entry.backend.offers()).await) });
    for (entry, offers) in join_all(asked).await {
        match offers {
            Ok(offers) => {
                offered.extend(offers.into_iter().map(|offer| (entry, offer)));
            }
            Err(error) => troubles.push(told(entry.backend.id(), &error)),
        }
    }
    troubles.extend(registry.broken().iter().map(|(id, error)| told(id, error)));
    let document = shared.settings.document();
    let views = STANDARD.iter().filter_map(|kind| {
        let mut mine: Vec<_> = offered.iter().filter(|(_, o)| o.kind.as_str() == kind.name).collect();
        // Those that start slower or cost by the minute are tried last.
        mine.sort_by_key(|(_, offer)| offer.last);
        let first = mine.first().map(|(_, offer)| &offer.capabilities);
        let offers: Vec<_> = mine.iter().map(|(entry, offer)| of(kind, entry, offer, first)).collect();
        if offers.is_empty() {
            return None;
        }
        let id = kind.id();
        Some(KindView { kind: *kind, on: document.kind_on(&id), sizes: document.sizes(&id), offers })
    });
    Kinds { kinds: views.collect(), backends: backends::view(shared), troubles }
}

fn of(kind: &Kind, entry: &Entry, offer: &Offer, first: Option<&Capabilities>) -> KindOffer {
    KindOffer {
        backend: entry.backend.id().clone(),
        on: entry.on,
        place: entry.backend.place(),
        transport: offer.capabilities.command.as_ref().map(|c| c.transport.clone()),
        features: offer.capabilities.features.clone(),
        ready_seconds: offer.ready_timeout.as_secs(),
        disagrees: disagreements(kind, &offer.capabilities, first),
    }
}
