//! Driving operations: one task for each that runs, from its turn to its end or its suspension.

use std::{
    any::Any,
    collections::{BTreeMap, btree_map::Entry},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use rusqlite::Connection;
use serde_json::Value;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Context, Ended, Event, Halt, State, What,
    halt::{Why, backoff, may_pass},
    queue::{self, Turn},
    replay::{Run, Wrong},
    rows::{self, Op},
    undo::UndoFn,
};
use crate::{
    env::Env,
    error::{Effect, Error, Result},
    store::Store,
};

pub(super) type OperationFn =
    Arc<dyn Fn(Context, Value) -> BoxFuture<'static, Result<Value, Halt>> + Send + Sync>;
pub(super) type OnEnd = Box<dyn Fn(&Connection, &Ended) -> Result<()> + Send + Sync>;

/// What the journal and its tasks share.
pub(super) struct Inner {
    pub(super) store: Arc<Store>,
    pub(super) env: Arc<dyn Env>,
    pub(super) functions: BTreeMap<(String, u32), OperationFn>,
    pub(super) undos: BTreeMap<String, UndoFn>,
    pub(super) on_end: OnEnd,
    pub(super) events: broadcast::Sender<Event>,
    pub(super) driven: Mutex<BTreeMap<i64, Driven>>,
    /// How many operations are being driven.
    pub(super) driving: watch::Sender<usize>,
    /// Cancelled when nothing new may begin.
    pub(super) closing: CancellationToken,
    /// Cancelled when what runs is cut off where it waits.
    pub(super) cut: CancellationToken,
    /// Cancelled when an operation ends, and all when one is suspended. Who waits is woken in the order in which they
    /// came: with a watch channel that would be by chance.
    pub(super) waits: Mutex<BTreeMap<i64, CancellationToken>>,
}

/// An operation that has a task.
pub(super) struct Driven {
    pub(super) cancel: CancellationToken,
    /// Something changed for it since its task last looked.
    again: bool,
}

/// What a driver does next.
pub(super) enum Next {
    /// Nothing, until the operation is woken.
    Leave,
    /// Runs the function again after a wait that a cancel cuts short.
    Again(Duration),
    /// Goes on after a wait.
    Pause(Duration),
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The words of a panic.
pub(super) fn panic_words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".to_owned())
}

impl Inner {
    pub(super) fn tell(&self, op: &Op, what: What) {
        // Nobody may be listening.
        let _ = self.events.send(Event {
            at: self.env.now(),
            operation: op.id.clone(),
            kind: op.kind.as_str().into(),
            boxes: op.boxes.as_slice().into(),
            by: op.by.as_str().into(),
            what,
        });
    }

    /// Drives the operation, or has its driver look at it once more.
    pub(super) fn wake(self: &Arc<Self>, n: i64) {
        let mut driven = locked(&self.driven);
        if self.closing.is_cancelled() {
            return;
        }
        match driven.entry(n) {
            Entry::Occupied(mut entry) => entry.get_mut().again = true,
            Entry::Vacant(entry) => {
                let cancel = CancellationToken::new();
                entry.insert(Driven { cancel: cancel.clone(), again: false });
                self.driving.send_modify(|count| *count += 1);
                tokio::spawn(self.clone().drive_until_cut(n, cancel));
            }
        }
    }

    /// Ends the operation's driver, unless something changed since it last looked.
    fn leave(&self, n: i64) -> bool {
        let mut driven = locked(&self.driven);
        let again = driven.get_mut(&n).is_some_and(|entry| std::mem::take(&mut entry.again));
        if again && !self.closing.is_cancelled() {
            return false;
        }
        self.forget_driver(&mut driven, n);
        true
    }

    fn forget_driver(&self, driven: &mut BTreeMap<i64, Driven>, n: i64) {
        driven.remove(&n);
        self.driving.send_modify(|count| *count = count.saturating_sub(1));
    }

    async fn drive_until_cut(self: Arc<Self>, n: i64, cancel: CancellationToken) {
        tokio::select! {
            biased;
            () = self.cut.cancelled() => self.forget_driver(&mut locked(&self.driven), n),
            driven = AssertUnwindSafe(self.clone().drive(n, cancel)).catch_unwind() => {
                // A fault of the journal itself: the operation is left as it is recorded, and the next process goes
                // on with it. Nobody waits for its driver for ever.
                if let Err(panic) = driven {
                    tracing::error!(operation = n, words = panic_words(&*panic), "driving an operation panicked");
                    self.forget_driver(&mut locked(&self.driven), n);
                }
            }
        }
    }

    async fn drive(self: Arc<Self>, n: i64, cancel: CancellationToken) {
        let mut unwritten = 0;
        loop {
            let next = self.once(n, &cancel).await;
            let wait = match next {
                Ok(Next::Leave) if self.leave(n) => return,
                Ok(Next::Leave) => Duration::ZERO,
                Ok(Next::Again(wait) | Next::Pause(wait)) => wait,
                Err(ref error) => {
                    if unwritten == 0 {
                        tracing::warn!(operation = n, error = %error.chain(), "the journal cannot be written: waiting");
                    }
                    backoff(self.env.as_ref(), unwritten)
                }
            };
            unwritten = if next.is_err() { unwritten.saturating_add(1) } else { 0 };
            if wait.is_zero() {
                continue;
            }
            let short = matches!(next, Ok(Next::Again(_)));
            tokio::select! {
                biased;
                () = self.closing.cancelled() => {}
                () = cancel.cancelled(), if short => {}
                () = self.env.sleep(wait) => {}
            }
            if self.closing.is_cancelled() && self.leave(n) {
                return;
            }
        }
    }

    /// Brings the operation as far as it goes now. An error is the journal's own.
    async fn once(self: &Arc<Self>, n: i64, cancel: &CancellationToken) -> Result<Next> {
        let Some(mut op) = self.store.read(|c| rows::operation(c, n))? else { return Ok(Next::Leave) };
        match op.state {
            State::Done | State::Failed | State::Cancelled | State::Unknown | State::Suspended => {
                return Ok(Next::Leave);
            }
            State::Queued if op.cancel => {
                let error = Error::cancelled(format!("{} was cancelled", op.kind));
                return self.end(op, State::Cancelled, Some(error), None).await;
            }
            State::Queued => {
                self.env.point(&format!("{} turn", op.kind)).await;
                match self.store.write(|tx| queue::take_turn(tx, n, op.over_unknown))? {
                    Turn::Now => op.ran = true,
                    Turn::Later => return Ok(Next::Leave),
                    Turn::Never(error) => return self.end(op, State::Failed, Some(error), None).await,
                }
            }
            State::Undoing => return self.undo_all(op).await,
            State::Running => {}
        }
        if op.cancel {
            cancel.cancel();
        }
        self.replay(op, cancel).await
    }

    /// Calls the operation's function from the top.
    async fn replay(self: &Arc<Self>, op: Op, cancel: &CancellationToken) -> Result<Next> {
        let Some(function) = self.functions.get(&(op.kind.clone(), op.version)).cloned() else {
            let words = format!("this program has no {} of version {}", op.kind, op.version);
            return self.suspend(op, &words);
        };
        let (n, args) = (op.n, op.args.clone());
        let steps = self.store.read(|c| rows::steps(c, n))?;
        let run = Arc::new(Run::new(self.clone(), op, cancel.clone(), steps));
        let context = Context::new(run.clone());
        let returned = AssertUnwindSafe(async move { function(context, args).await }).catch_unwind().await;
        let op = run.op.clone();
        let result = match returned {
            Err(panic) => return self.suspend(op, &format!("it panicked: {}", panic_words(&*panic))),
            Ok(result) => run.stopped().map_or(result, |why| Err(Halt(why))),
        };
        if let Ok(_) | Err(Halt(Why::Failed(_) | Why::Cancelled)) = &result
            && let Some(key) = run.left()
        {
            return self.suspend(op, &format!("the recorded step {key} is not asked for any more"));
        }
        match result {
            Ok(value) => self.end(op, State::Done, None, Some(value)).await,
            Err(Halt(Why::Failed(error))) => self.take_back(op, error).await,
            Err(Halt(Why::Cancelled)) => {
                let error = Error::cancelled(format!("{} was cancelled", op.kind));
                self.take_back(op, error).await
            }
            Err(Halt(Why::Again(wait))) => Ok(Next::Again(wait)),
            Err(Halt(Why::Store(error))) if may_pass(&error) => Err(error),
            Err(Halt(Why::Store(error))) => self.suspend(op, &error.chain()),
            Err(Halt(Why::Unfit(words))) => self.suspend(op, &words),
            Err(Halt(Why::Closed)) => Ok(Next::Leave),
        }
    }

    /// Has the operation stand still, with why.
    fn suspend(&self, op: Op, words: &str) -> Result<Next> {
        let error = Error::failed(format!("{} {} stands still: {words}", op.kind, op.id))
            .effect(Effect::Unknown)
            .at("operation", &op.id)
            .fix(
                "run the version that began it, or release its box, which takes it back: `bbbox release BOX`",
            );
        self.store.write(|tx| rows::set_suspended(tx, op.n, &error))?;
        tracing::warn!(operation = %op.id, kind = op.kind, words, "an operation stands still");
        self.tell(&op, What::Suspended { error });
        // Who waits for one queued behind it looks again too.
        for wait in std::mem::take(&mut *locked(&self.waits)).into_values() {
            wait.cancel();
        }
        Ok(Next::Leave)
    }

    /// Ends the operation, with what its end means for the records, and lets the next ones on its boxes go.
    pub(super) async fn end(
        self: &Arc<Self>,
        op: Op,
        state: State,
        error: Option<Error>,
        result: Option<Value>,
    ) -> Result<Next> {
        self.env.point(&format!("{} end", op.kind)).await;
        let mut ended = Ended {
            id: op.id.clone(),
            kind: op.kind.clone(),
            args: op.args.clone(),
            state,
            ran: op.ran,
            error,
            result,
        };
        let next = match self.record_end(op.n, &ended, true) {
            Ok(next) => next,
            Err(Wrong::Domain(error)) if !may_pass(&error) && op.give_up => {
                tracing::warn!(operation = %op.id, kind = op.kind, error = %error.chain(),
                    "an operation ended that its records know nothing of");
                if op.ran {
                    ended.state = State::Unknown;
                    ended.error = ended.error.map(|e| {
                        e.effect(Effect::Unknown).at("its end could not be recorded", error.chain())
                    });
                }
                match self.record_end(op.n, &ended, false) {
                    Ok(next) => next,
                    Err(Wrong::Domain(error) | Wrong::Store(error)) => return Err(self.store.named(error)),
                    Err(Wrong::Cancelled) => return Ok(Next::Leave),
                }
            }
            Err(Wrong::Domain(error)) if !may_pass(&error) => {
                return self.suspend(op, &format!("its end could not be recorded: {}", error.chain()));
            }
            Err(Wrong::Domain(error) | Wrong::Store(error)) => return Err(self.store.named(error)),
            Err(Wrong::Cancelled) => return Ok(Next::Leave),
        };
        if ended.state == State::Unknown {
            let error = ended.error.as_ref().map(Error::chain);
            tracing::warn!(operation = %op.id, kind = op.kind, error, "how an operation left its boxes is not known");
        }
        self.tell(&op, What::Ended { state: ended.state, error: ended.error });
        self.end_wait(op.n);
        for n in next {
            self.wake(n);
        }
        self.env.point(&format!("{} ended", op.kind)).await;
        Ok(Next::Leave)
    }

    /// Wakes who waits for the operation.
    pub(super) fn end_wait(&self, n: i64) {
        let wait = locked(&self.waits).remove(&n);
        if let Some(wait) = wait {
            wait.cancel();
        }
    }

    /// The transaction that ends an operation, and which ones go next. `told`: the records are told too.
    fn record_end(&self, n: i64, ended: &Ended, told: bool) -> Result<Vec<i64>, Wrong> {
        self.store.transact(|tx| {
            let (error, result) = (ended.error.as_ref(), ended.result.as_ref());
            rows::set_ended(tx, n, ended.state, error, result, self.env.now())?;
            if told {
                // What panics here would never end, so it stands still like what fails.
                match catch_unwind(AssertUnwindSafe(|| (self.on_end)(tx, ended))) {
                    Ok(told) => told.map_err(Wrong::Domain)?,
                    Err(panic) => {
                        let words = format!("it panicked: {}", panic_words(&*panic));
                        return Err(Wrong::Domain(Error::failed(words)));
                    }
                }
            }
            Ok(queue::let_go(tx, n, ended.state)?)
        })
    }
}
