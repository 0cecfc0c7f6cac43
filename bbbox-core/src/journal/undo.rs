//! Taking back what an operation did, from what was recorded.
//!
//! Undos are rows, and their handlers are registered by kind, so an operation is taken back without its function:
//! also when the function was changed, removed, or panics. They run newest first. One that cannot be run is stuck;
//! the earlier ones are still tried, and the operation ends unknown.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;

use super::{
    State, What,
    drive::{Inner, Next, panic_words},
    halt::{ATTEMPTS, backoff, may_pass},
    rows::{self, Op, Undo},
    summary,
};
use crate::error::{Effect, Error, ErrorKind, Result};

/// Takes back one effect: told how many runs of it began before, and what it is given. It is safe to repeat.
pub(super) type UndoFn = Arc<dyn Fn(u32, Value) -> BoxFuture<'static, Result<()>> + Send + Sync>;

impl Inner {
    /// Records that the operation is being taken back, and why, and takes it back.
    pub(super) async fn take_back(self: &Arc<Self>, mut op: Op, cause: Error) -> Result<Next> {
        self.env.point(&format!("{} undoing", op.kind)).await;
        let cause = self.store.write(|tx| {
            let cause = if rows::cancel_asked(tx, op.n)? && cause.kind() != ErrorKind::Cancelled {
                Error::cancelled(format!("{} was cancelled", op.kind)).because(cause)
            } else {
                cause
            };
            rows::set_undoing(tx, op.n, &cause)?;
            Ok(cause)
        })?;
        self.tell(&op, What::Undoing { cause: cause.clone() });
        op.cause = Some(cause);
        self.undo_all(op).await
    }

    /// Runs what is armed, and ends the operation.
    pub(super) async fn undo_all(self: &Arc<Self>, op: Op) -> Result<Next> {
        while let Some(undo) = self.store.read(|c| rows::next_undo(c, op.n))? {
            if self.closing.is_cancelled() {
                return Ok(Next::Leave);
            }
            if let Some(wait) = self.undo_one(&op, &undo).await? {
                return Ok(Next::Pause(wait));
            }
        }
        let cause = op.cause.clone().unwrap_or_else(|| Error::failed(format!("{} failed", op.kind)));
        let (left, untaken, stuck) = self
            .store
            .read(|c| Ok((rows::left_over(c, op.n)?, rows::untaken(c, op.n)?, summary::stuck(c, op.n)?)))?;
        let (state, error) = if left {
            let error =
                stuck.into_iter().fold(cause.effect(Effect::Unknown), |e, words| e.at("not undone", words));
            (State::Unknown, error)
        } else if cause.kind() == ErrorKind::Cancelled {
            (State::Cancelled, cause)
        } else if untaken {
            (State::Failed, cause)
        } else {
            // Whatever the step that failed may have done was taken back.
            (State::Failed, cause.effect(Effect::None))
        };
        self.end(op, state, Some(error), None).await
    }

    /// Runs one undo, and says how long to wait when it is to be run again.
    async fn undo_one(self: &Arc<Self>, op: &Op, undo: &Undo) -> Result<Option<std::time::Duration>> {
        let point =
            |at: &str| self.env.point(&format!("{} undo {} of {} {at}", op.kind, undo.kind, undo.step));
        point("intend").await;
        self.store.write(|tx| rows::intend_undo(tx, undo.n))?;
        point("intended").await;
        let ran = self.call(undo).await;
        point("acted").await;
        let (state, error, again) = match ran {
            Ok(()) => ("undone", None, None),
            Err(error) if may_pass(&error) && undo.failures + 1 < ATTEMPTS => {
                let wait = backoff(self.env.as_ref(), undo.failures);
                ("armed", Some(error), Some(wait))
            }
            Err(error) => ("stuck", Some(error), None),
        };
        self.store.write(|tx| rows::set_undo(tx, undo.n, state, again.is_some(), error.as_ref()))?;
        self.tell(op, What::Undo { kind: undo.kind.clone(), step: undo.step.clone(), error, again });
        point(state).await;
        Ok(again)
    }

    async fn call(&self, undo: &Undo) -> Result<()> {
        let Some(handler) = self.undos.get(&undo.kind) else {
            return Err(Error::failed(format!("this program does not know how to undo {:?}", undo.kind)));
        };
        let payload = rows::json(&undo.payload)?;
        let (handler, tries) = (handler.clone(), undo.tries);
        match AssertUnwindSafe(async move { handler(tries, payload).await }).catch_unwind().await {
            Ok(result) => result,
            Err(panic) => {
                Err(Error::failed(format!("undo {:?} panicked", undo.kind)).because_of(panic_words(&*panic)))
            }
        }
    }
}
