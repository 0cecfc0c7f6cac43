//! A box's life as journalled operations: one file for each.
//!
//! Each operation has an argument type, a `begin` that writes the record's change in the transaction that begins
//! it, the function that the journal runs (and runs again after a restart), and what its ending means for the
//! record. What a provider is asked stands in steps; what is recorded stands in the same transactions as they do.

mod acquire;
mod adopt;
mod check;
mod forget;
mod image;
mod power;
mod ready;
mod release;
mod rename;
mod resize;

use std::sync::Arc;

use rusqlite::Connection;
use serde::{Serialize, de::DeserializeOwned};

pub(crate) use acquire::{Acquire, begin as begin_acquire, begun as begun_acquire};
pub(crate) use adopt::{Adopt, Stray, begin_adopt, begin_stray};
pub(crate) use check::{KIND as CHECK, begin as begin_check};
pub(crate) use forget::begin as begin_forget;
pub(crate) use image::begin as begin_image_build;
pub(crate) use power::{begin_start, begin_stop};
pub(crate) use release::{If, begin as begin_release};
pub(crate) use rename::{Change, Rename, begin as begin_rename};
pub(crate) use resize::{Resize, begin as begin_resize};

use crate::{
    env::Env,
    error::{Effect, Error, Result},
    id::{BoxId, OperationId, RequestId, ThreadId},
    journal::{Begin, Ended, Journal, State, Summary},
    record::BoxRecord,
    records,
    store::Store,
    world::World,
};

/// The journal over `store`, with every operation of a box's life.
pub(crate) fn journal(store: Arc<Store>, env: Arc<dyn Env>, world: &Arc<World>) -> Arc<Journal> {
    let mut builder = Journal::builder(store, env);
    for register in [
        acquire::register,
        adopt::register,
        check::register,
        forget::register,
        image::register,
        power::register,
        release::register,
        rename::register,
        resize::register,
    ] {
        builder = register(builder, world);
    }
    let noted = Arc::clone(world);
    builder.on_end(move |tx, ended| on_end(&noted, tx, ended)).build()
}

/// What an operation's end means for its box: written in the transaction that ends it.
///
/// One that never got its turn changed nothing of the record, which is another operation's just now; only the name
/// that a rename had taken, and the record that an acquire began with, go with it.
fn on_end(world: &World, tx: &Connection, ended: &Ended) -> Result<()> {
    match ended.kind.as_str() {
        kind if !ended.ran && ![acquire::KIND, rename::KIND].contains(&kind) => Ok(()),
        acquire::KIND => acquire::ended(world, tx, ended),
        // What waited for a box that is gone by now changed nothing, and the box's log has its end.
        _ if !is_there(tx, ended)? => Ok(()),
        release::KIND => release::ended(world, tx, ended),
        power::START | power::STOP => power::ended(world, tx, ended),
        resize::KIND => resize::ended(world, tx, ended),
        rename::KIND => rename::ended(world, tx, ended),
        _ => Ok(()),
    }
}

/// Whether the operation's box still has its record.
fn is_there(tx: &Connection, ended: &Ended) -> Result<bool> {
    match ended.args["box"].as_str() {
        Some(id) => Ok(records::get(tx, &BoxId::parse(id)?)?.is_some()),
        None => Ok(true),
    }
}

/// Who asks for an operation, and under which request ID.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// In words for people, such as `by you`.
    pub(crate) by: String,
    /// The caller's own ID for it.
    pub(crate) request: Option<RequestId>,
    /// The thread through whose view it is asked for.
    pub(crate) thread: Option<ThreadId>,
}

impl Asked {
    /// By bb-box itself.
    pub(crate) fn by_itself(why: &str) -> Self {
        Self { by: format!("by bb-box: {why}"), request: None, thread: None }
    }
}

/// Refuses what `thread` asked for once the box is not its own any more: looked at in the operation's turn, as what went
/// before may have handed the box on.
fn still_its(thread: Option<&ThreadId>, record: &BoxRecord) -> Result<()> {
    if thread.is_none_or(|thread| record.thread.as_ref() == Some(thread)) {
        return Ok(());
    }
    Err(Error::cancelled("the box was handed to somebody else before this had its turn").effect(Effect::None))
}

/// What begins an operation on one box.
struct Opening<'a, A> {
    kind: &'static str,
    box_id: &'a BoxId,
    asked: &'a Asked,
    args: &'a A,
    /// What a repeat of the request must ask again to be the same; `None`: the arguments.
    same: Option<serde_json::Value>,
    /// Whether it takes the box over from an operation whose outcome is unknown.
    over_unknown: bool,
}

impl<'a, A> Opening<'a, A> {
    fn new(kind: &'static str, box_id: &'a BoxId, asked: &'a Asked, args: &'a A) -> Self {
        Self { kind, box_id, asked, args, same: None, over_unknown: false }
    }

    /// Takes the box over from an operation whose outcome is unknown.
    fn over_unknown(mut self) -> Self {
        self.over_unknown = true;
        self
    }
}

/// Begins an operation on one box; `also` changes the record in the same transaction.
fn begin<A: Serialize>(
    journal: &Journal,
    opening: Opening<'_, A>,
    also: impl FnOnce(&Connection, &OperationId) -> Result<()>,
) -> Result<OperationId> {
    let args = serde_json::to_value(opening.args)
        .map_err(|e| Error::failed(format!("could not record the {}", opening.kind)).because(e))?;
    let begun = journal.begin(
        Begin {
            kind: opening.kind,
            version: 1,
            request: opening.asked.request.clone(),
            asked: opening.same,
            boxes: vec![opening.box_id.clone()],
            by: opening.asked.by.clone(),
            args,
            over_unknown: opening.over_unknown,
        },
        also,
    )?;
    Ok(begun.id().clone())
}

/// Whether nobody wants a guest of the operation's box any more: it was released, or never came to be.
pub(crate) fn gives_up(operation: &Summary) -> bool {
    match operation.kind.as_str() {
        release::KIND => release::released(operation),
        acquire::KIND => matches!(operation.state, State::Failed | State::Cancelled),
        _ => false,
    }
}

/// The record that an operation is about, in its transaction.
fn record_in(tx: &Connection, id: &BoxId) -> Result<BoxRecord> {
    records::get(tx, id)?.ok_or_else(|| crate::world::no_such_box(id.as_str()))
}

/// An ended operation's arguments.
fn args<A: DeserializeOwned>(ended: &Ended) -> Result<A> {
    serde_json::from_value(ended.args.clone()).map_err(|e| {
        Error::failed(format!("operation {} has arguments of another form", ended.id)).because(e)
    })
}

/// In the trouble of an operation whose outcome is not known.
const NOT_KNOWN: &str = "its outcome is not known";

/// The words of an operation's end that a record keeps as its trouble: the operation's kind, then what went wrong.
fn trouble(ended: &Ended) -> Option<String> {
    let what = ended.kind.replace('-', " ");
    match (&ended.error, ended.state) {
        (Some(error), State::Unknown) => Some(format!("{what}: {NOT_KNOWN}: {}", error.chain())),
        (Some(error), State::Failed) => Some(format!("{what}: {}", error.chain())),
        _ => None,
    }
}
