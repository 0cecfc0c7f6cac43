//! One run of an operation's function: what is recorded of it, and what it has asked for so far.
//!
//! A retry, a resume and a restart are the same thing: the rows are loaded and the function is called from the
//! top. Names, not positions, are the key to a recorded step, so branches may be polled in any order.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use rusqlite::Connection;
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;

use super::{
    What,
    drive::Inner,
    halt::{Halt, Why, backoff, may_pass},
    rows::{self, Op, Outcome, Step},
};
use crate::error::{Effect, Error, ErrorKind};

/// One call of an operation's function.
pub(super) struct Run {
    pub(super) inner: Arc<Inner>,
    pub(super) op: Op,
    pub(super) cancel: CancellationToken,
    memo: Mutex<Memo>,
}

struct Memo {
    rows: BTreeMap<String, Row>,
    calls: BTreeMap<String, u32>,
    seq: i64,
    /// Why nothing new may begin. It stays, whatever the function makes of it.
    stop: Option<Why>,
}

struct Row {
    step: Step,
    replayed: bool,
}

/// What is recorded of a step that a function asks for.
pub(super) enum Past<T> {
    /// It is done.
    Done(T),
    /// It is to be run.
    Todo(Todo),
}

/// A step that is to be run.
pub(super) struct Todo {
    pub(super) key: String,
    pub(super) seq: i64,
    pub(super) tries: u32,
    pub(super) failures: u32,
    pub(super) task: Option<String>,
    /// A crash cut its last run off: it is brought to a recorded end before anything else is done about it.
    pub(super) in_flight: bool,
}

/// When a run of a step began: the time that is stored, and what its duration is measured from.
#[derive(Clone, Copy)]
pub(super) struct Began {
    at: Timestamp,
    elapsed: Duration,
}

/// What went wrong in a step's transaction.
pub(super) enum Wrong {
    /// The journal's own part.
    Store(Error),
    /// The caller's part: an outcome of the step.
    Domain(Error),
    /// Somebody asked to cancel the operation.
    Cancelled,
}

impl Wrong {
    /// The caller's part, when it can have changed nothing: what it looked at says nothing of an effect here.
    pub(super) fn without_effect(error: Error) -> Self {
        Self::Domain(error.effect(Effect::None))
    }
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Run {
    pub(super) fn new(
        inner: Arc<Inner>,
        op: Op,
        cancel: CancellationToken,
        steps: Vec<(String, Step)>,
    ) -> Self {
        let seq = i64::try_from(steps.len()).unwrap_or(i64::MAX);
        let rows = steps.into_iter().map(|(key, step)| (key, Row { step, replayed: false })).collect();
        Self { inner, op, cancel, memo: Mutex::new(Memo { rows, calls: BTreeMap::new(), seq, stop: None }) }
    }

    fn memo(&self) -> MutexGuard<'_, Memo> {
        self.memo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.inner.env.now()
    }

    /// Notes that a run of a step begins.
    pub(super) fn begin(&self) -> Began {
        Began { at: self.now(), elapsed: self.inner.env.elapsed() }
    }

    fn took(&self, began: Began) -> Duration {
        self.inner.env.elapsed().saturating_sub(began.elapsed)
    }

    pub(super) async fn point(&self, key: &str, at: &str) {
        self.inner.env.point(&format!("{} {key} {at}", self.op.kind)).await;
    }

    pub(super) fn tell(&self, what: What) {
        self.inner.tell(&self.op, what);
    }

    /// Looks up the next call of `name` in `scope`.
    pub(super) fn enter<T: DeserializeOwned>(&self, scope: &str, name: &str) -> Result<Past<T>, Halt> {
        assert!(!name.is_empty() && !name.contains(['/', '#']), "{name:?} is no name for a step");
        let mut memo = self.memo();
        let key = memo.key(scope, name);
        let mut todo = Todo { seq: memo.seq, tries: 0, failures: 0, task: None, in_flight: false, key };
        if let Some(row) = memo.rows.get_mut(&todo.key) {
            row.replayed = true;
            let unfit =
                |error: Error| Why::Unfit(format!("the result of step {}: {}", todo.key, error.chain()));
            let step = &row.step;
            match step.state.as_str() {
                "done" => match rows::json(step.value.as_deref().unwrap_or("null")) {
                    Ok(value) => return Ok(Past::Done(value)),
                    Err(error) => return Err(memo.stop(unfit(error))),
                },
                "failed" => match rows::json(step.error.as_deref().unwrap_or("null")) {
                    Ok(error) => return Err(memo.failed(error)),
                    Err(error) => return Err(memo.stop(unfit(error))),
                },
                state => {
                    todo.in_flight = state == "started";
                    (todo.tries, todo.failures, todo.task) = (step.tries, step.failures, step.task.clone());
                }
            }
        } else {
            memo.seq += 1;
        }
        if let Some(skipped) = memo.skipped(scope) {
            let words = format!("step {} comes before the recorded step {skipped}", todo.key);
            return Err(memo.stop(Why::Unfit(words)));
        }
        if self.inner.closing.is_cancelled() {
            return Err(memo.stop(Why::Closed));
        }
        match &memo.stop {
            Some(Why::Cancelled) if todo.in_flight => Ok(Past::Todo(todo)),
            Some(why) => Err(Halt(why.clone())),
            None => Ok(Past::Todo(todo)),
        }
    }

    /// From now on nothing new begins in this run.
    pub(super) fn stop(&self, why: Why) -> Halt {
        self.memo().stop(why)
    }

    /// Why this run had to stop, if it had to.
    pub(super) fn stopped(&self) -> Option<Why> {
        self.memo().stop.clone()
    }

    /// A recorded step that the function did not ask for.
    pub(super) fn left(&self) -> Option<String> {
        self.memo().rows.iter().find(|(_, row)| !row.replayed).map(|(key, _)| key.clone())
    }

    /// One transaction of a step. A new step does not begin once the operation is cancelled.
    pub(super) fn transact<T>(
        &self,
        todo: &Todo,
        f: impl FnOnce(&Connection) -> Result<T, Wrong>,
    ) -> Result<T, Wrong> {
        self.inner.store.transact(|tx| {
            if !todo.in_flight && rows::cancel_asked(tx, self.op.n)? {
                return Err(Wrong::Cancelled);
            }
            f(tx)
        })
    }

    /// Records that a step is done with `value`, in the caller's transaction.
    pub(super) fn done<T: Serialize>(
        &self,
        tx: &Connection,
        todo: &Todo,
        value: &T,
        began: Began,
    ) -> Result<(), Wrong> {
        let value = rows::text(value).map_err(Wrong::Domain)?;
        let end = Outcome { state: "done", value: Some(value), error: None, touched: false, failed: false };
        rows::record(tx, self.op.n, &todo.key, todo.seq, &end, [began.at, self.now()]).map_err(Wrong::Store)
    }

    /// Tells that a step is done.
    pub(super) fn tell_done(&self, todo: &Todo, began: Began) {
        let took = self.took(began);
        self.tell(What::StepEnded { step: todo.key.clone(), took, error: None, again: None });
    }

    /// Records what went wrong in a step, and says how the function goes on.
    pub(super) async fn went_wrong(&self, todo: &Todo, attempts: u32, began: Began, wrong: Wrong) -> Halt {
        let error = match wrong {
            Wrong::Store(error) => return self.stop(Why::Store(self.inner.store.named(error))),
            Wrong::Cancelled => return self.stop(Why::Cancelled),
            Wrong::Domain(error) => self.inner.store.named(error),
        };
        let again = (may_pass(&error) && todo.failures + 1 < attempts)
            .then(|| backoff(self.inner.env.as_ref(), todo.failures));
        let end = Outcome {
            state: if again.is_some() { "waiting" } else { "failed" },
            value: None,
            error: Some(&error),
            touched: error.effect_of() != Effect::None,
            failed: again.is_some(),
        };
        let (ended, took) = (self.now(), self.took(began));
        let recorded = self
            .inner
            .store
            .write(|tx| rows::record(tx, self.op.n, &todo.key, todo.seq, &end, [began.at, ended]));
        if let Err(error) = recorded {
            return self.stop(Why::Store(error));
        }
        self.tell(What::StepEnded { step: todo.key.clone(), took, error: Some(error.clone()), again });
        self.point(&todo.key, "recorded").await;
        match again {
            Some(wait) => self.stop(Why::Again(wait)),
            None => self.memo().failed(error),
        }
    }
}

impl Memo {
    /// `name`, and `name#1`, `name#2` for the same name again.
    fn key(&mut self, scope: &str, name: &str) -> String {
        let base = format!("{scope}{name}");
        let calls = self.calls.entry(base.clone()).or_insert(0);
        let nth = *calls;
        *calls += 1;
        if nth == 0 { base } else { format!("{base}#{nth}") }
    }

    fn stop(&mut self, why: Why) -> Halt {
        Halt(self.stop.get_or_insert(why).clone())
    }

    fn failed(&mut self, error: Error) -> Halt {
        if error.kind() == ErrorKind::Cancelled {
            self.stop(Why::Cancelled)
        } else {
            Halt(Why::Failed(error))
        }
    }

    /// A step recorded in `scope` itself that was not asked for yet.
    fn skipped(&self, scope: &str) -> Option<&str> {
        self.rows
            .range(scope.to_owned()..)
            .take_while(|(key, _)| key.starts_with(scope))
            .find(|(key, row)| !row.replayed && !key[scope.len()..].contains('/'))
            .map(|(key, _)| key.as_str())
    }
}
