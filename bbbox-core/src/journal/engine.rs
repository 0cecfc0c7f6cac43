//! The journal as its users see it: beginning, waiting, cancelling, looking.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde_json::Value;
use tokio::sync::broadcast;

use super::{
    Begin, Begun, Event, JournalBuilder, State, Summary, What,
    drive::{Inner, locked},
    queue::{self, Turn},
    rows, summary,
};
use crate::{
    env::Env,
    error::{Effect, Error, ErrorKind, Result},
    id::{BoxId, OperationId, RequestId},
    store::Store,
};

/// How many operations one transaction of a prune deletes.
const PRUNED_AT_ONCE: usize = 500;
/// How many operations are read at a time.
const PAGE: i64 = 200;

/// The operations of one store, and the tasks that drive them.
///
/// Its methods that begin or wake operations are called in a tokio runtime. Clones share everything.
#[derive(Clone)]
pub(crate) struct Journal {
    pub(super) inner: Arc<Inner>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("driving", &*self.inner.driving.borrow()).finish_non_exhaustive()
    }
}

impl Journal {
    /// A journal in `store`, whose operations are then registered.
    pub(crate) fn builder(store: Arc<Store>, env: Arc<dyn Env>) -> JournalBuilder {
        JournalBuilder::new(store, env)
    }

    /// Records an operation, with the caller's own writes, in one transaction, and drives it when its turn comes.
    ///
    /// Once this returns, the operation ends, whatever happens to this process.
    ///
    /// # Errors
    /// `Unavailable` after [`Journal::close`]; `Invalid` when the request was used for something else; `Refused` when the last operation on one of the boxes
    /// ended unknown; what `also` returns. Nothing is written then.
    pub(crate) fn begin<T>(
        &self,
        begin: Begin,
        also: impl FnOnce(&Connection, &OperationId) -> Result<T>,
    ) -> Result<Begun<T>> {
        #[cfg(feature = "simulation")]
        let begin = match begin.request {
            Some(_) if crate::simulation::is(crate::simulation::Bug::RequestTwice) => {
                Begin { request: None, ..begin }
            }
            _ => begin,
        };
        let inner = &self.inner;
        if inner.closing.is_cancelled() {
            return Err(closing());
        }
        let asked = rows::text(begin.asked.as_ref().unwrap_or(&begin.args))?;
        let (begun, op, turn) = inner.store.write(|tx| {
            if let Some(request) = &begin.request
                && let Some(id) = repeated(tx, request, begin.kind, &asked)?
            {
                return Ok((Begun::Repeat { id }, None, Turn::Later));
            }
            let id = OperationId::draw(|| inner.env.random());
            let n = rows::add(tx, &id, &begin, &asked, inner.env.now())?;
            let turn = queue::take_turn(tx, n, begin.over_unknown)?;
            if let Turn::Never(error) = turn {
                return Err(error);
            }
            let value = also(tx, &id)?;
            Ok((Begun::New { id, value }, rows::operation(tx, n)?, turn))
        })?;
        if let Some(op) = op {
            let now = matches!(turn, Turn::Now);
            inner.tell(&op, What::Began { queued: !now });
            if now {
                inner.wake(op.n);
            }
        }
        Ok(begun)
    }

    /// The operation that a request began, if it did.
    ///
    /// # Errors
    /// `Invalid` when the request was used for something else; `Unavailable` when the journal cannot be read.
    pub(crate) fn begun(
        &self,
        request: &RequestId,
        kind: &str,
        asked: &Value,
    ) -> Result<Option<OperationId>> {
        #[cfg(feature = "simulation")]
        if crate::simulation::is(crate::simulation::Bug::RequestTwice) {
            return Ok(None);
        }
        let asked = rows::text(asked)?;
        self.inner.store.read(|c| repeated(c, request, kind, &asked))
    }

    /// Waits for an operation's end, and returns its result. Any number may wait, also after its end.
    ///
    /// # Errors
    /// The operation's own error; why it stands still, when it is suspended; `Busy` when it is queued behind one that
    /// stands still, and goes on once that one does; `Unavailable` when this process closes
    /// before it ended; `Gone` when there is no such operation.
    pub(crate) async fn wait(&self, id: &OperationId) -> Result<Value> {
        let n = self.inner.store.read(|c| rows::number(c, id))?;
        loop {
            // Before the look, so that an end in between is not missed.
            let end = locked(&self.inner.waits).entry(n).or_default().clone();
            let found = self.inner.store.read(|c| summary::list(c, "WHERE n = ?1", [n]))?.pop();
            let Some(found) = found else {
                self.inner.end_wait(n);
                return Err(Error::gone(format!("there is no operation {id}")));
            };
            if found.state.ended() || found.state == State::Suspended {
                self.inner.end_wait(n);
                return match found.state {
                    State::Done => Ok(found.result.unwrap_or(Value::Null)),
                    _ => Err(found.error.unwrap_or_else(|| Error::failed(format!("{} failed", found.kind)))),
                };
            }
            if found.state == State::Queued
                && let Some(before) = self.inner.store.read(|c| queue::stands_before(c, n))?
            {
                let why = self.show(&before.0)?.and_then(|before| before.error);
                return Err(queued_behind(&found, &before, why));
            }
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                () = self.inner.closing.cancelled() => return Err(closing().at("operation", id)),
            }
        }
    }

    /// Asks an operation to stop and take back what it did. `false` when it is too late: it ended, is being taken
    /// back already, or did something that has no undo and so only goes forward.
    ///
    /// A suspended operation is taken back without its function; what has no undo then leaves it unknown. One that
    /// was being taken back when it was suspended ends: as it would have, or when that still cannot be recorded,
    /// unknown and without a word to the records, so that nothing holds a box for ever.
    ///
    /// # Errors
    /// `Gone` when there is no such operation.
    pub(crate) fn cancel(&self, id: &OperationId) -> Result<bool> {
        let (n, asked) = self.inner.store.write(|tx| {
            let n = rows::number(tx, id)?;
            let Some(op) = rows::operation(tx, n)? else { return Ok((n, false)) };
            let asked = match op.state {
                State::Queued | State::Running => !rows::bound(tx, n)?,
                State::Suspended => true,
                _ => false,
            };
            if asked {
                rows::set_cancel(tx, n)?;
                if op.state == State::Suspended {
                    if op.cause.is_some() {
                        rows::give_up(tx, n)?;
                    }
                    rows::set_undoing(tx, n, &Error::cancelled(format!("{} was cancelled", op.kind)))?;
                }
            }
            Ok((n, asked))
        })?;
        if asked {
            if let Some(driven) = locked(&self.inner.driven).get(&n) {
                driven.cancel.cancel();
            }
            self.inner.wake(n);
        }
        Ok(asked)
    }

    /// Drives every operation that has not ended, also those that stood still, as after a restart, and says how many
    /// there are.
    ///
    /// # Errors
    /// `Unavailable` when the journal cannot be written.
    pub(crate) fn resume(&self) -> Result<usize> {
        let live = self.inner.store.write(rows::revive)?;
        for n in &live {
            self.inner.wake(*n);
        }
        Ok(live.len())
    }

    /// What happens in operations from now on. A receiver that falls far behind loses the oldest events.
    #[must_use]
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe()
    }

    /// The operations that hold a box now, the one that runs first: live ones, and unknown ones.
    ///
    /// # Errors
    /// `Unavailable` when the journal cannot be read.
    pub(crate) fn live(&self, box_id: &BoxId) -> Result<Vec<Summary>> {
        let rest =
            "WHERE n IN (SELECT operation FROM operation_boxes WHERE box = ?1 AND holds = 1) ORDER BY n";
        self.inner.store.read(|c| summary::list(c, rest, [box_id.as_str()]))
    }

    /// Every operation of a box that is still kept, oldest first.
    ///
    /// # Errors
    /// `Unavailable` when the journal cannot be read.
    pub(crate) fn history(&self, box_id: &BoxId) -> Result<Vec<Summary>> {
        let rest = "WHERE n IN (SELECT operation FROM operation_boxes WHERE box = ?1) ORDER BY n";
        self.inner.store.read(|c| summary::list(c, rest, [box_id.as_str()]))
    }

    /// One operation, with its steps and undos.
    ///
    /// # Errors
    /// `Unavailable` when the journal cannot be read.
    pub(crate) fn show(&self, id: &OperationId) -> Result<Option<Summary>> {
        self.inner.store.read(|c| {
            let Some(mut shown) = summary::list(c, "WHERE id = ?1", [id.as_str()])?.pop() else {
                return Ok(None);
            };
            let n = rows::number(c, id)?;
            shown.steps = summary::steps(c, n)?;
            shown.undos = summary::undos(c, n)?;
            Ok(Some(shown))
        })
    }

    /// The last operations that `wanted` says yes to, newest first.
    ///
    /// # Errors
    /// `Unavailable` when the journal cannot be read.
    pub(crate) fn recent(&self, limit: usize, wanted: impl Fn(&Summary) -> bool) -> Result<Vec<Summary>> {
        let (mut found, mut seen) = (Vec::new(), 0);
        while found.len() < limit {
            let page = self.inner.store.read(|c| {
                summary::list(
                    c,
                    "ORDER BY n DESC LIMIT ?1 OFFSET ?2",
                    [PAGE, i64::try_from(seen).unwrap_or(i64::MAX)],
                )
            })?;
            if page.is_empty() {
                break;
            }
            seen += page.len();
            found.extend(page.into_iter().filter(&wanted));
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Every operation that has not come to its end, oldest first: under way, queued, standing still, or ended in a
    /// way that is not known and holds its boxes.
    ///
    /// # Errors
    /// `Unavailable` when the journal cannot be read.
    pub(crate) fn unfinished(&self) -> Result<Vec<Summary>> {
        let rest = "WHERE state IN ('queued', 'running', 'undoing', 'suspended') OR (state = 'unknown'
            AND EXISTS(SELECT 1 FROM operation_boxes WHERE operation = n AND holds = 1)) ORDER BY n";
        self.inner.store.read(|c| summary::list(c, rest, []))
    }

    /// Waits until nothing is being driven: all that is left is queued behind what stands still, or stands still.
    pub(crate) async fn idle(&self) {
        let mut driving = self.inner.driving.subscribe();
        // The sender lives as long as `self`.
        let _ = driving.wait_for(|count| *count == 0).await;
    }

    /// Begins nothing new and lets the steps that run come to their end, for at most `within`; what still runs then is
    /// cut off where it waits, as a crash would, and how many those were is returned.
    ///
    /// What is left for the next process is what is recorded: operations that are queued, that stopped between two
    /// steps, or whose step or undo was cut off and is run again. They go on when it resumes them; who waits for one
    /// here is told so. The store's lock is released once the last clone of this journal and of the store is gone.
    pub(crate) async fn close(&self, within: Duration) -> usize {
        self.inner.closing.cancel();
        tokio::select! {
            biased;
            () = self.idle() => return 0,
            () = self.inner.env.sleep(within) => {}
        }
        let left = *self.inner.driving.borrow();
        self.inner.cut.cancel();
        self.idle().await;
        left
    }

    /// Deletes the operations that ended before then and hold no box, and says how many those were. A request of one
    /// of them is then no repeat any more.
    ///
    /// # Errors
    /// `Unavailable` when the journal cannot be written.
    pub(crate) fn prune(&self, ended_before: Timestamp) -> Result<usize> {
        let sql = "DELETE FROM operations WHERE n IN (SELECT n FROM operations WHERE ended < ?1
            AND NOT EXISTS(SELECT 1 FROM operation_boxes WHERE operation = n AND holds = 1) LIMIT ?2)";
        let mut pruned = 0;
        loop {
            let limit = i64::try_from(PRUNED_AT_ONCE).unwrap_or(i64::MAX);
            let some = self
                .inner
                .store
                .write(|tx| rows::run(tx, sql, params![ended_before.as_millisecond(), limit]))?;
            pruned += some;
            if some < PRUNED_AT_ONCE {
                return Ok(pruned);
            }
        }
    }
}

fn closing() -> Error {
    Error::unavailable("this process is closing: what it began goes on when it is started again")
        .fix("start it again, then ask again")
}

/// Why nobody can wait for an operation that is queued behind one that stands still.
fn queued_behind(found: &Summary, (id, kind): &(OperationId, String), why: Option<Error>) -> Error {
    let words = format!("{} {} is queued behind {kind} {id}, which stands still", found.kind, found.id);
    let error = Error::new(ErrorKind::Busy, words)
        .effect(Effect::Unknown)
        .at("operation", &found.id)
        .at("behind", id)
        .fix(format!(
            "run the version that began {kind} {id}, or release its box, which takes both back: `bbbox release BOX`"
        ));
    match why {
        Some(why) => error.because(why),
        None => error,
    }
}

/// The operation that the request began, if it did.
fn repeated(tx: &Connection, request: &RequestId, kind: &str, asked: &str) -> Result<Option<OperationId>> {
    let Some((id, old_kind, old_asked)) = rows::of_request(tx, request.as_str())? else { return Ok(None) };
    if old_kind == kind && old_asked == asked {
        return Ok(Some(id));
    }
    Err(Error::invalid(format!("the request ID {request} was used for another request, {old_kind} {id}"))
        .at("operation", id)
        .fix("use a new request ID"))
}
