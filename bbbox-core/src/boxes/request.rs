//! A request for a box: what a caller may say, and what it means.

use serde_json::{Value, json};

use super::{Boxes, Caller};
use crate::{
    error::{Error, Result},
    id::{BoxId, BoxName, RequestId, ThreadId},
    kind::{Wanted, standard},
    life::{self, Asked},
    record::{Beginning, BoxRecord},
    registry::Ask,
    size::SizeChoice,
};

/// A request for a box.
#[derive(Clone, Debug)]
pub struct Acquire {
    kind: String,
    size: Option<SizeChoice>,
    on: Vec<String>,
    name: Option<BoxName>,
    thread: Option<ThreadId>,
    request: Option<RequestId>,
}

impl Acquire {
    /// A box of `kind`, or of what an alias such as `linux-docker` stands for.
    pub fn kind(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), size: None, on: Vec::new(), name: None, thread: None, request: None }
    }

    /// Its size; the kind's default otherwise.
    #[must_use]
    pub fn size(mut self, size: SizeChoice) -> Self {
        self.size = Some(size);
        self
    }

    /// A provider to try, by backend ID or a host's name. Said more than once, the first with room takes it; others
    /// are never tried.
    #[must_use]
    pub fn on(mut self, provider: impl Into<String>) -> Self {
        self.on.push(provider.into());
        self
    }

    /// Its name; one is made up otherwise.
    #[must_use]
    pub fn name(mut self, name: BoxName) -> Self {
        self.name = Some(name);
        self
    }

    /// The thread that has it. An agent's boxes are always its own thread's.
    #[must_use]
    pub fn thread(mut self, thread: ThreadId) -> Self {
        self.thread = Some(thread);
        self
    }

    /// The caller's own ID: the same request said again is the same box, until a week after its acquire ended. Whatever
    /// the configuration says by then.
    #[must_use]
    pub fn request(mut self, request: RequestId) -> Self {
        self.request = Some(request);
        self
    }
}

/// Who asks, and what in the words that were said: whatever it means now, the same said again is the same request.
pub(super) struct Said {
    pub(super) asked: Asked,
    pub(super) same: Value,
    thread: Option<ThreadId>,
}

/// What was said by asking for `acquire`.
pub(super) fn said(boxes: &Boxes, acquire: &Acquire) -> Result<Said> {
    let thread = match (&boxes.caller, &acquire.thread) {
        (Caller::Thread(own), Some(other)) if own != other => {
            return Err(Error::refused("an agent's box is its own thread's").fix("leave the thread out"));
        }
        (Caller::Thread(own), _) => Some(own.clone()),
        (_, thread) => thread.clone(),
    };
    let request = acquire.request.clone().map(|request| boxes.caller.scoped(request)).transpose()?;
    let asked = Asked { request, ..boxes.asked() };
    let Acquire { kind, size, on, name, .. } = acquire;
    let same = json!({ "kind": kind, "size": size, "on": on, "name": name, "thread": thread });
    Ok(Said { asked, same, thread })
}

/// What a request means here and now.
pub(super) struct Resolved {
    pub(super) order: life::Acquire,
    pub(super) record: BoxRecord,
}

/// What `acquire` means here and now.
pub(super) fn resolve(boxes: &Boxes, acquire: Acquire, said: &Said) -> Result<Resolved> {
    let world = &boxes.shared.world;
    let wanted = Wanted::parse(&acquire.kind)?;
    let kind = standard(&wanted.kind).ok_or_else(|| {
        Error::invalid(format!("there is no kind {}", wanted.kind)).fix("see `bbbox kinds`")
    })?;
    let document = boxes.shared.settings.document();
    if !document.kind_on(&wanted.kind) {
        return Err(Error::refused(format!("the kind {} is switched off", wanted.kind))
            .fix("switch it on in the configuration's `kinds`, or use another kind"));
    }
    let size = document.sizes(&wanted.kind).resolve(acquire.size.as_ref(), kind.os)?;
    let box_id = BoxId::draw(|| world.env.random());
    let name = match acquire.name {
        Some(name) => name,
        None => world.store.read(|tx| world.spare_name(tx, &wanted.kind))?,
    };
    let ask = Ask { wanted, size, on: acquire.on };
    let beginning = Beginning {
        id: box_id.clone(),
        name,
        thread: said.thread.clone(),
        kind: ask.wanted.kind.clone(),
        size,
        made: world.env.now(),
    };
    let record = BoxRecord { features: ask.wanted.features.clone(), ..BoxRecord::new(beginning) };
    let order = life::Acquire { box_id, ask, by: said.asked.by.clone() };
    Ok(Resolved { order, record })
}
