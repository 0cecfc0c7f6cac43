//! The registry: which backends there are, in which order a box's offers are tried, and where it goes.
//!
//! Choosing is in two parts: a *survey* asks the candidates for their room, without effect; the *choice* is made
//! from the survey and from the records, in the transaction that records it. So a box is never placed on an answer
//! that another acquire has made old.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::{
    backend::{Backend, Offer},
    capacity::{Capacity, Holding},
    error::{Error, ErrorKind, Result},
    id::{BackendId, BoxId, InstallId},
    kind::{Capabilities, Wanted},
    records,
    size::Size,
};

/// One configured backend.
#[derive(Clone)]
pub struct Entry {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// Whether new boxes may go there. An entry that is off keeps serving the boxes it has.
    pub on: bool,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.backend.id(), if self.on { "" } else { " (off)" })
    }
}

/// The configured backends, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    entries: Vec<Entry>,
    /// Configured backends that could not be built, and why.
    broken: Vec<(BackendId, Error)>,
}

/// What a box asks of the registry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) wanted: Wanted,
    pub(crate) size: Size,
    /// The providers to try, by backend ID or by a host's name; empty for all.
    pub(crate) on: Vec<String>,
}

/// One offer that may serve, with what it has room for.
pub(crate) struct Candidate {
    backend: BackendId,
    offer: Offer,
    capacity: Result<Capacity>,
    /// The hosts that `on` names, where it names hosts; else every host.
    hosts: Option<Vec<String>>,
}

/// What the offers that may serve have room for.
pub(crate) struct Survey {
    candidates: Vec<Candidate>,
    /// The words of those that cannot serve at all: part of the answer when the rest is full.
    unmet: Vec<String>,
}

/// Where a box goes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Placement {
    pub(crate) backend: BackendId,
    pub(crate) host: Option<String>,
    pub(crate) capabilities: Capabilities,
    pub(crate) ready_timeout: Duration,
}

impl Registry {
    /// A registry of `entries`, tried in their order, and of those that could not be built.
    ///
    /// # Errors
    /// `Invalid` when two have one ID.
    pub fn new(entries: Vec<Entry>, broken: Vec<(BackendId, Error)>) -> Result<Self> {
        for (n, entry) in entries.iter().enumerate() {
            if entries.iter().take(n).any(|e| e.backend.id() == entry.backend.id()) {
                return Err(Error::invalid(format!("two backends have the ID {}", entry.backend.id()))
                    .fix("give each backend an ID of its own"));
            }
        }
        Ok(Self { entries, broken })
    }

    /// Every entry, in order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Configured backends that could not be built, and why.
    #[must_use]
    pub fn broken(&self) -> &[(BackendId, Error)] {
        &self.broken
    }

    /// Whether `id` is configured, built or not.
    #[must_use]
    pub fn is_configured(&self, id: &BackendId) -> bool {
        self.entries.iter().any(|e| e.backend.id() == id) || self.broken.iter().any(|(b, _)| b == id)
    }

    /// The backend `id`.
    ///
    /// # Errors
    /// Why it could not be built; `Refused` when it is not configured any more.
    pub fn backend(&self, id: &BackendId) -> Result<Arc<dyn Backend>> {
        if let Some((_, error)) = self.broken.iter().find(|(b, _)| b == id) {
            return Err(error.clone());
        }
        self.entries.iter().find(|e| e.backend.id() == id).map(|e| Arc::clone(&e.backend)).ok_or_else(|| {
            Error::refused(format!("the backend {id} is not in the configuration"))
                .fix("put it back, or forget its boxes with `bbbox forget`")
        })
    }

    /// Asks each offer that may serve `ask` for its room, in the order in which they are tried.
    ///
    /// # Errors
    /// `Invalid` when `on` names nothing that is configured, `Refused` when nothing offers the kind.
    pub(crate) async fn survey(&self, ask: &Ask, install: &InstallId) -> Result<Survey> {
        let named = |id: &BackendId| ask.on.iter().any(|on| on == id.as_str());
        let (mut plain, mut last, mut unmet) = (Vec::new(), Vec::new(), Vec::new());
        let mut silent = false;
        let mut hosts_named: BTreeMap<&str, bool> =
            ask.on.iter().map(|on| (on.as_str(), self.names(on))).collect();
        for (id, error) in self.broken.iter().filter(|(id, _)| ask.on.is_empty() || named(id)) {
            silent = true;
            unmet.push(format!("{id}: {}", error.chain()));
        }
        for Entry { backend, on } in &self.entries {
            let id = backend.id();
            // Only a name that is no backend's can be a host's, so others need not be asked.
            let by_host = hosts_named.values().any(|known| !known);
            if !ask.on.is_empty() && !named(id) && !by_host {
                continue;
            }
            if !on {
                if named(id) {
                    unmet.push(format!("{id}: it is switched off for new boxes"));
                }
                continue;
            }
            let offers = match backend.offers().await {
                Ok(offers) => offers,
                Err(error) => {
                    silent = true;
                    unmet.push(format!("{id}: {}", error.chain()));
                    continue;
                }
            };
            let Some(offer) = offers.into_iter().find(|o| o.kind == ask.wanted.kind) else { continue };
            if !ask.wanted.served_by(&offer.capabilities.features) {
                let missing: Vec<_> = ask
                    .wanted
                    .features
                    .difference(&offer.capabilities.features)
                    .map(ToString::to_string)
                    .collect();
                unmet.push(format!("{id}: its {} has no {}", offer.kind, missing.join(", ")));
                continue;
            }
            let capacity = backend.capacity(&ask.wanted.kind, install).await;
            let mut hosts = None;
            if !ask.on.is_empty() && !named(id) {
                let here: Vec<String> = capacity
                    .iter()
                    .flat_map(|c| &c.hosts)
                    .filter_map(|h| h.host.clone())
                    .filter(|host| ask.on.contains(host))
                    .collect();
                for host in &here {
                    if let Some(known) = hosts_named.get_mut(host.as_str()) {
                        *known = true;
                    }
                }
                if here.is_empty() {
                    continue;
                }
                hosts = Some(here);
            }
            let candidate = Candidate { backend: id.clone(), offer, capacity, hosts };
            if candidate.offer.last { last.push(candidate) } else { plain.push(candidate) }
        }
        if let Some((unknown, _)) = hosts_named.iter().find(|(_, known)| !**known) {
            let all: Vec<_> = self.entries.iter().map(|e| e.backend.id().as_str()).collect();
            return Err(Error::invalid(format!("there is no provider {unknown:?}"))
                .fix(format!("use one of {}, or leave `on` out", all.join(", "))));
        }
        plain.append(&mut last);
        if plain.is_empty() {
            return Err(nothing_serves(ask, unmet, silent));
        }
        Ok(Survey { candidates: plain, unmet })
    }

    fn names(&self, word: &str) -> bool {
        BackendId::parse(word).is_ok_and(|id| self.is_configured(&id))
    }

    /// Chooses the first candidate and host with room beside what the records hold.
    ///
    /// # Errors
    /// `NoCapacity` with each candidate's words; `Unavailable` when none of them answered.
    pub(crate) fn choose(
        tx: &Connection,
        ask_for: &BoxId,
        size: Size,
        survey: Survey,
        passed_over: &[(BackendId, String)],
    ) -> Result<Placement> {
        let mut words = Vec::new();
        let mut answered = false;
        for Candidate { backend, offer, capacity, hosts } in survey.candidates {
            if let Some((_, why)) = passed_over.iter().find(|(id, _)| *id == backend) {
                answered = true;
                words.push(format!("{backend}: {why}"));
                continue;
            }
            let rooms = match capacity {
                Ok(capacity) => capacity.hosts,
                Err(error) => {
                    words.push(format!("{backend}: {}", error.chain()));
                    continue;
                }
            };
            answered = true;
            let held = records::holdings(tx, &backend)?;
            for room in rooms
                .iter()
                .filter(|r| hosts.as_ref().is_none_or(|h| r.host.as_ref().is_some_and(|n| h.contains(n))))
            {
                let here = held.iter().filter(|(_, host, _)| *host == room.host).map(|(id, _, h)| (id, *h));
                match room.fits(ask_for, Holding { size, running: true }, here) {
                    Ok(()) => {
                        return Ok(Placement {
                            backend,
                            host: room.host.clone(),
                            capabilities: offer.capabilities,
                            ready_timeout: offer.ready_timeout,
                        });
                    }
                    Err(full) => words.push(format!("{backend}: {full}")),
                }
            }
            if rooms.is_empty() {
                words.push(format!("{backend}: it has no host"));
            }
        }
        words.extend(survey.unmet);
        let kind = if answered { ErrorKind::NoCapacity } else { ErrorKind::Unavailable };
        Err(Error::new(kind, format!("nothing has room for a box of {size}"))
            .because_of(words.join("; "))
            .fix("release or stop a box, ask for a smaller size, or add a backend"))
    }
}

/// `silent`: a backend that might serve did not answer.
fn nothing_serves(ask: &Ask, unmet: Vec<String>, silent: bool) -> Error {
    let features: Vec<_> = ask.wanted.features.iter().map(|f| format!(" with {f}")).collect();
    let what = format!("{}{}", ask.wanted.kind, features.concat());
    let error = if silent {
        Error::unavailable(format!("no backend that answers offers {what}"))
            .fix("mend what is named, then try again")
    } else {
        Error::refused(format!("no backend offers {what}"))
            .fix("see `bbbox kinds` for what is offered, and the configuration's backends")
    };
    if unmet.is_empty() { error } else { error.because_of(unmet.join("; ")) }
}
