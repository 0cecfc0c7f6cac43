//! The registry: which backends there are, in which order a box's offers are tried, and where it goes.
//!
//! Choosing is in two parts: a *survey* asks the candidates for their room, without effect; the *choice* is made
//! from the survey and from the records, in the transaction that records it. So a box is never placed on an answer
//! that another acquire has made old.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::{
    backend::{Backend, Offer},
    capacity::{Capacity, Holding, HostRoom},
    env::Env,
    error::{Error, ErrorKind, Result},
    id::{BackendId, BoxId, InstallId},
    kind::{Capabilities, Wanted},
    record::BoxRecord,
    records,
    size::Size,
};

/// How long a backend may take to say what it offers and has room for, before others are chosen without it.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);

/// One configured backend.
#[derive(Clone)]
pub(crate) struct Entry {
    /// The backend.
    pub(crate) backend: Arc<dyn Backend>,
    /// Whether new boxes may go there. An entry that is off keeps serving the boxes it has.
    pub(crate) on: bool,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.backend.id(), if self.on { "" } else { " (off)" })
    }
}

/// The configured backends, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
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
    /// Its place in the configured order.
    at: usize,
    offer: Offer,
    capacity: Result<Capacity>,
    /// The hosts that `on` names, where it names hosts; else every host.
    hosts: Option<Vec<String>>,
}

/// What the offers that may serve have room for.
pub(crate) struct Survey {
    candidates: Vec<Candidate>,
    /// Those that cannot serve at all: part of the answer when the rest is full.
    unmet: Vec<Unmet>,
}

/// A backend that cannot serve an ask.
struct Unmet {
    /// Its place in the configured order; the first, where that is not known.
    at: usize,
    /// Which it is, and why not.
    words: String,
}

fn joined(unmet: &[Unmet]) -> String {
    unmet.iter().map(|unmet| unmet.words.as_str()).collect::<Vec<_>>().join("; ")
}

/// What one backend said to an ask.
enum Said {
    /// It may serve.
    May(Box<Candidate>),
    /// It cannot serve, in words.
    Cannot(String),
    /// It did not answer, in words.
    Silent(String),
    /// It has nothing to do with the ask.
    Apart,
}

/// Where a box goes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Placement {
    pub(crate) backend: BackendId,
    pub(crate) host: Option<String>,
    pub(crate) capabilities: Capabilities,
    pub(crate) ready_timeout: Duration,
    /// What was tried before it, and why it was not taken, in words.
    #[serde(default)]
    pub(crate) passed_over: Vec<String>,
}

impl Registry {
    /// A registry of `entries`, tried in their order, and of those that could not be built. A second entry with an
    /// ID that is taken cannot be used.
    #[must_use]
    pub(crate) fn new(entries: Vec<Entry>, mut broken: Vec<(BackendId, Error)>) -> Self {
        let mut ids = BTreeSet::new();
        let (entries, doubled): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| ids.insert(entry.backend.id().clone()));
        broken.extend(doubled.into_iter().map(|entry| {
            let id = entry.backend.id().clone();
            let error = Error::invalid(format!("two backends have the ID {id}"))
                .fix("give each backend an ID of its own");
            (id, error)
        }));
        Self { entries, broken }
    }

    /// Every entry, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Configured backends that could not be built, and why.
    #[must_use]
    pub(crate) fn broken(&self) -> &[(BackendId, Error)] {
        &self.broken
    }

    /// Whether `id` is configured, built or not.
    #[must_use]
    pub(crate) fn is_configured(&self, id: &BackendId) -> bool {
        self.entries.iter().any(|e| e.backend.id() == id) || self.broken.iter().any(|(b, _)| b == id)
    }

    /// What is to be done about a box whose backend is not configured; `None` where it is, or none was chosen yet.
    pub(crate) fn without_backend(&self, record: &BoxRecord) -> Option<String> {
        let backend = record.backend.as_ref().filter(|backend| !self.is_configured(backend))?;
        let name = &record.name;
        Some(format!(
            "box {name}: its backend {backend} is not configured; put it back, or `bbbox forget {name}`"
        ))
    }

    /// The backend `id`.
    ///
    /// # Errors
    /// Why it could not be built; `Refused` when it is not configured any more.
    pub(crate) fn backend(&self, id: &BackendId) -> Result<Arc<dyn Backend>> {
        if let Some(entry) = self.entries.iter().find(|e| e.backend.id() == id) {
            return Ok(Arc::clone(&entry.backend));
        }
        if let Some((_, error)) = self.broken.iter().find(|(b, _)| b == id) {
            return Err(error.clone());
        }
        Err(Error::refused(format!("the backend {id} is not in the configuration"))
            .fix("put it back, or forget its boxes with `bbbox forget`"))
    }

    /// Asks every offer that may serve `ask` for its room, side by side, and keeps the order in which they are tried.
    ///
    /// # Errors
    /// `Invalid` when `on` names nothing that is configured, `Refused` when nothing offers the kind, `Unavailable`
    /// when what might serve does not answer.
    pub(crate) async fn survey(&self, ask: &Ask, install: &InstallId, env: &dyn Env) -> Result<Survey> {
        // A name that is no backend's can only be a host's, and then every backend is asked for its hosts.
        let hosts: Vec<&str> = ask.on.iter().map(String::as_str).filter(|on| !self.names(on)).collect();
        let said = join_all(self.entries.iter().map(|entry| consult(entry, ask, &hosts, install, env))).await;
        let (mut plain, mut last, mut unmet, mut silent) = (Vec::new(), Vec::new(), Vec::new(), false);
        for (at, said) in said.into_iter().enumerate() {
            match said {
                Said::May(candidate) if candidate.offer.last => last.push(Candidate { at, ..*candidate }),
                Said::May(candidate) => plain.push(Candidate { at, ..*candidate }),
                Said::Cannot(words) => unmet.push(Unmet { at, words }),
                Said::Silent(words) => {
                    silent = true;
                    unmet.push(Unmet { at, words });
                }
                Said::Apart => {}
            }
        }
        for (id, error) in &self.broken {
            if ask.on.is_empty() || !hosts.is_empty() || ask.on.iter().any(|on| on == id.as_str()) {
                silent = true;
                unmet.push(Unmet { at: 0, words: told(id, error) });
            }
        }
        plain.append(&mut last);
        let found = |host: &&str| plain.iter().any(|c| c.hosts.iter().flatten().any(|h| h == host));
        if let Some(unknown) = hosts.iter().find(|host| !found(host)) {
            return Err(self.no_provider(unknown, silent, &unmet));
        }
        if plain.is_empty() {
            return Err(nothing_serves(ask, &unmet, silent));
        }
        Ok(Survey { candidates: plain, unmet })
    }

    fn names(&self, word: &str) -> bool {
        BackendId::parse(word).is_ok_and(|id| self.is_configured(&id))
    }

    fn no_provider(&self, unknown: &str, silent: bool, unmet: &[Unmet]) -> Error {
        if silent {
            return Error::unavailable(format!("it is not known now whether {unknown:?} is a host"))
                .because_of(joined(unmet))
                .fix("mend what is named, then try again");
        }
        let all: Vec<_> = self.entries.iter().map(|e| e.backend.id().as_str()).collect();
        Error::invalid(format!("there is no provider {unknown:?} for this kind"))
            .fix(format!("use one of {}, or leave --on out", all.join(", ")))
    }

    /// Chooses the first candidate and host with room beside what the records hold, leaving out `passed_over`: where
    /// the provider itself turned out to be full.
    ///
    /// # Errors
    /// `NoCapacity` with each candidate's words; `Unavailable` when none is full: they do not answer, or take nothing
    /// now.
    pub(crate) fn choose(
        tx: &Connection,
        ask_for: &BoxId,
        size: Size,
        survey: Survey,
        passed_over: &[PassedOver],
    ) -> Result<Placement> {
        let ask = Holding { size, running: true };
        let mut words = Vec::new();
        let (mut full, mut large_enough) = (false, false);
        for Candidate { backend, at, offer, capacity, hosts } in survey.candidates {
            let rooms = match capacity {
                Ok(capacity) => capacity.hosts,
                Err(error) => {
                    words.push(told(&backend, &error));
                    continue;
                }
            };
            let named = |room: &&HostRoom| {
                hosts.as_ref().is_none_or(|hosts| room.host.as_ref().is_some_and(|host| hosts.contains(host)))
            };
            for room in rooms.iter().filter(named) {
                let passed = passed_over.iter().find(|p| p.backend == backend && p.host == room.host);
                full |= passed.is_some() || room.closed.is_none();
                large_enough |= room.is_large_enough(&ask);
                let fits = match passed {
                    Some(passed) => Err(passed.words.clone()),
                    None => fits(tx, &backend, room, ask_for, ask)?,
                };
                match fits {
                    Ok(()) => {
                        let before = survey.unmet.iter().filter(|unmet| offer.last || unmet.at < at);
                        words.extend(before.map(|unmet| unmet.words.clone()));
                        return Ok(Placement {
                            backend,
                            host: room.host.clone(),
                            capabilities: offer.capabilities,
                            ready_timeout: offer.ready_timeout,
                            passed_over: words,
                        });
                    }
                    Err(why) => words.push(format!("{backend}: {why}")),
                }
            }
            if rooms.is_empty() {
                (full, large_enough) = (true, true);
                words.push(format!("{backend}: it has no host"));
            }
        }
        words.extend(survey.unmet.into_iter().map(|unmet| unmet.words));
        // To release a box helps only where one is full.
        let error = if full && !large_enough {
            Error::new(
                ErrorKind::NoCapacity,
                format!("nothing that answers is large enough for a box of {size}"),
            )
            .fix("ask for a smaller size, such as `--size small`, or add a backend")
        } else if full {
            Error::new(ErrorKind::NoCapacity, format!("nothing has room for a box of {size}"))
                .fix("release or stop a box, ask for a smaller size, or add a backend")
        } else {
            Error::unavailable("nothing takes a new box now").fix("mend what is named, then try again")
        };
        Err(error.because_of(words.join("; ")))
    }
}

/// A host that the provider itself found full.
pub(crate) struct PassedOver {
    pub(crate) backend: BackendId,
    pub(crate) host: Option<String>,
    pub(crate) words: String,
}

/// A backend's error where several are told: with what to do about it, as other advice is for all of them.
pub(crate) fn told(id: &BackendId, error: &Error) -> String {
    format!("{id}: {}", error.in_a_line())
}

/// What `entry` says to `ask`, at the latest after [`ANSWER`].
async fn consult(entry: &Entry, ask: &Ask, hosts: &[&str], install: &InstallId, env: &dyn Env) -> Said {
    let id = entry.backend.id();
    let named = ask.on.iter().any(|on| on == id.as_str());
    if !ask.on.is_empty() && !named && hosts.is_empty() {
        return Said::Apart;
    }
    if !entry.on {
        let words = format!("{id}: it is switched off for new boxes");
        return if named { Said::Cannot(words) } else { Said::Apart };
    }
    let silent = |error: Error| Said::Silent(told(id, &error));
    let offers = match within(env, ANSWER, entry.backend.offers()).await {
        Ok(offers) => offers,
        Err(error) => return silent(error),
    };
    let Some(offer) = offers.into_iter().find(|o| o.kind == ask.wanted.kind) else { return Said::Apart };
    if !ask.wanted.served_by(&offer.capabilities.features) {
        let missing: Vec<_> =
            ask.wanted.features.difference(&offer.capabilities.features).map(ToString::to_string).collect();
        return Said::Cannot(format!("{id}: its {} has no {}", offer.kind, missing.join(", ")));
    }
    let capacity = within(env, ANSWER, entry.backend.capacity(&ask.wanted.kind, install)).await;
    let mut asked_hosts = None;
    if !ask.on.is_empty() && !named {
        let capacity = match &capacity {
            Ok(capacity) => capacity,
            Err(error) => return silent(error.clone()),
        };
        let here = capacity.hosts.iter().filter_map(|h| h.host.clone());
        let here: Vec<String> = here.filter(|host| hosts.contains(&host.as_str())).collect();
        if here.is_empty() {
            return Said::Apart;
        }
        asked_hosts = Some(here);
    }
    Said::May(Box::new(Candidate { backend: id.clone(), at: 0, offer, capacity, hosts: asked_hosts }))
}

/// What `work` answers, or `Unavailable` after `limit`.
pub(crate) async fn within<T>(
    env: &dyn Env,
    limit: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        biased;
        answer = work => answer,
        () = env.sleep(limit) => {
            Err(Error::unavailable(format!("it did not answer within {} s", limit.as_secs()))
                .fix("look at the provider, then try again"))
        }
    }
}

/// Whether `ask_for` fits at `room` beside what the records hold there; else what is full.
fn fits(
    tx: &Connection,
    backend: &BackendId,
    room: &HostRoom,
    ask_for: &BoxId,
    ask: Holding,
) -> Result<std::result::Result<(), String>> {
    let held = records::holdings(tx, backend)?;
    #[cfg(feature = "simulation")]
    let held = if crate::simulation::is(crate::simulation::Bug::SharedRoom) { Vec::new() } else { held };
    let here = held.iter().filter(|(_, host, _)| *host == room.host).map(|(id, _, holding)| (id, *holding));
    Ok(room.fits(ask_for, ask, here))
}

/// Makes sure that a box which has its place already may take `ask` there: before it starts, or is resized.
///
/// # Errors
/// `NoCapacity` with what is full, `Unavailable` when its host is not among the backend's any more.
pub(crate) fn room_to_grow(
    tx: &Connection,
    record: &BoxRecord,
    capacity: &Capacity,
    ask: Holding,
) -> Result<()> {
    let no_host = || {
        Error::unavailable(format!("the host of box {} does not answer for its backend", record.name))
            .fix("look at the backend's hosts")
    };
    let backend = record.backend.as_ref().ok_or_else(no_host)?;
    let room = capacity.hosts.iter().find(|room| room.host == record.host).ok_or_else(no_host)?;
    // A host that takes no new box keeps serving those it has.
    let open = HostRoom { closed: None, ..room.clone() };
    fits(tx, backend, &open, &record.id, ask)?.map_err(|full| {
        Error::new(ErrorKind::NoCapacity, format!("there is no room for box {} at {}", record.name, ask.size))
            .because_of(full)
            .fix("stop or release another box first, or ask for less")
    })
}

/// `silent`: a backend that might serve did not answer.
fn nothing_serves(ask: &Ask, unmet: &[Unmet], silent: bool) -> Error {
    let features: Vec<_> = ask.wanted.features.iter().map(|f| format!(" with {f}")).collect();
    let what = format!("{}{}", ask.wanted.kind, features.concat());
    let error = if silent {
        Error::unavailable(format!("no backend that answers offers {what}"))
            .fix("mend what is named, then try again")
    } else {
        Error::refused(format!("no backend offers {what}"))
            .fix("see `bbbox kinds` for what is offered, and the configuration's backends")
    };
    if unmet.is_empty() { error } else { error.because_of(joined(unmet)) }
}
