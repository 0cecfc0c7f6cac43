//! A step with an effect outside the database: intent, deed, result.
//!
//! The intent is recorded first, with the undos that take the deed back. A crash after it leaves the step to be run
//! again, so a deed is safe to repeat, and it is told how many runs began before it and what task they left.

use std::{fmt, sync::Arc};

use rusqlite::Connection;
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;

use super::{
    Halt, What,
    halt::ATTEMPTS,
    replay::{Past, Run, Todo, Wrong},
    rows,
};
#[cfg(test)]
use crate::env::Env;
use crate::error::{Effect, Error, Result};

/// What a step can do outside the database.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Nothing: it looks.
    Looks,
    /// Something that can be read back at any time, and that asking again does not change.
    Observable,
    /// Anything.
    Acts,
}

/// A step that is being described. [`StepBuilder::run`] runs it.
pub(crate) struct StepBuilder<W> {
    run: Arc<Run>,
    scope: String,
    name: String,
    reach: Reach,
    undos: Vec<(String, Result<String>)>,
    attempts: u32,
    record: W,
}

impl<W> fmt::Debug for StepBuilder<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StepBuilder({}{})", self.scope, self.name)
    }
}

/// What is written to the database with a step's result.
pub(crate) trait Record<T> {
    /// Writes it.
    ///
    /// # Errors
    /// What the write makes of it; the step then did not succeed.
    fn record(self, tx: &Connection, value: &T) -> Result<()>;
}

/// Nothing is written with a step's result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

impl<T> Record<T> for Plain {
    fn record(self, _tx: &Connection, _value: &T) -> Result<()> {
        Ok(())
    }
}

/// A closure that writes with a step's result.
pub(crate) struct With<F>(F);

impl<F> fmt::Debug for With<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("With")
    }
}

impl<T, F: FnOnce(&Connection, &T) -> Result<()>> Record<T> for With<F> {
    fn record(self, tx: &Connection, value: &T) -> Result<()> {
        (self.0)(tx, value)
    }
}

impl StepBuilder<Plain> {
    pub(super) fn new(run: Arc<Run>, scope: &str, name: &str, reach: Reach) -> Self {
        Self {
            run,
            scope: scope.to_owned(),
            name: name.to_owned(),
            reach,
            undos: Vec::new(),
            attempts: ATTEMPTS,
            record: Plain,
        }
    }

    /// What is written to the database in the transaction that records the step's result.
    #[must_use = "a step does nothing until it is run"]
    pub(crate) fn record<T, F: FnOnce(&Connection, &T) -> Result<()>>(self, f: F) -> StepBuilder<With<F>> {
        let Self { run, scope, name, reach, undos, attempts, record: Plain } = self;
        StepBuilder { run, scope, name, reach, undos, attempts, record: With(f) }
    }
}

impl<W> StepBuilder<W> {
    /// Arms an undo in the transaction that records the step's intent: when the operation fails or is cancelled,
    /// the undo registered as `kind` is run with `payload`, newest first, whatever became of this step.
    ///
    /// The payload names what the step may make, from what is known **before** it, such as a claim. It is kept in
    /// the journal: never a secret.
    #[must_use = "a step does nothing until it is run"]
    pub(crate) fn undo(mut self, kind: &str, payload: impl Serialize) -> Self {
        self.undos.push((kind.to_owned(), rows::text(&payload)));
        self
    }

    /// Says that the step's effect can be read back at any time and that asking again changes nothing more, such as
    /// turning a guest on. Its failure then leaves nothing unknown, and it does not bind the operation to go forward.
    #[must_use = "a step does nothing until it is run"]
    pub(crate) fn observable(mut self) -> Self {
        self.reach = Reach::Observable;
        self
    }

    /// How many runs may end in an error that may pass (`Unavailable`, `Busy`) before the step has failed; 8 unless
    /// this is called. Runs that a crash cut off do not count.
    #[must_use = "a step does nothing until it is run"]
    pub(crate) fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// Runs the step, or returns what is recorded of it.
    ///
    /// An error of kind `Unavailable` or `Busy` is tried again with growing waits; `Cancelled` ends the operation as
    /// cancelled; any other is the step's end, and is returned by every replay.
    ///
    /// # Errors
    /// [`Halt`], when the step failed for good or the function must return.
    pub(crate) async fn run<T, F>(self, f: F) -> Result<T, Halt>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Attempt) -> Result<T>,
        W: Record<T>,
    {
        let Self { run, scope, name, reach, undos, attempts, record } = self;
        let todo = match run.enter(&scope, &name)? {
            Past::Done(value) => return Ok(value),
            Past::Todo(todo) => todo,
        };
        run.point(&todo.key, "intend").await;
        let began = run.begin();
        if let Err(wrong) = intend(&run, &todo, reach, undos) {
            return Err(run.went_wrong(&todo, attempts, began, wrong).await);
        }
        run.tell(What::StepStarted { step: todo.key.clone(), tries: todo.tries });
        run.point(&todo.key, "intended").await;
        let result = f(Attempt::new(run.clone(), &todo)).await;
        run.point(&todo.key, "acted").await;
        let wrong = if reach == Reach::Looks { Wrong::without_effect } else { Wrong::Domain };
        let recorded = result.map_err(wrong).and_then(|value| {
            run.inner.store.transact(|tx| {
                let applied = |error: Error| wrong(error.effect(Effect::Applied));
                record.record(tx, &value).map_err(applied)?;
                run.done(tx, &todo, &value, began)
            })?;
            Ok(value)
        });
        match recorded {
            Ok(value) => {
                run.tell_done(&todo, began);
                run.point(&todo.key, "recorded").await;
                Ok(value)
            }
            Err(wrong) => Err(run.went_wrong(&todo, attempts, began, wrong).await),
        }
    }
}

fn intend(run: &Run, todo: &Todo, reach: Reach, undos: Vec<(String, Result<String>)>) -> Result<(), Wrong> {
    let undos = undos
        .into_iter()
        .map(|(kind, payload)| Ok((kind, payload.map_err(Wrong::Domain)?)))
        .collect::<Result<Vec<_>, Wrong>>()?;
    let covered = reach != Reach::Acts || !undos.is_empty();
    run.transact(todo, |tx| {
        rows::intend(tx, run.op.n, &todo.key, todo.seq, covered, run.now())?;
        for (nth, (kind, payload)) in undos.iter().enumerate() {
            rows::arm(tx, run.op.n, &todo.key, nth, kind, payload)?;
        }
        Ok(())
    })
}

/// One run of a step, as its closure sees it.
#[derive(Clone)]
pub(crate) struct Attempt {
    /// How many runs of this step began before this one, also before a crash. Above 0, it may have happened.
    pub(crate) tries: u32,
    /// The provider's task that an earlier run saved.
    pub(crate) task: Option<String>,
    run: Arc<Run>,
    key: String,
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("step", &self.key).field("tries", &self.tries).finish_non_exhaustive()
    }
}

impl Attempt {
    pub(super) fn new(run: Arc<Run>, todo: &Todo) -> Self {
        Self { tries: todo.tries, task: todo.task.clone(), run, key: todo.key.clone() }
    }

    /// Time, chance and crash points.
    #[cfg(test)]
    pub(crate) fn env(&self) -> &dyn Env {
        self.run.inner.env.as_ref()
    }

    /// Cancelled once somebody asked to cancel the operation in time. A step that waits long looks at it, and
    /// returns an error of kind `Cancelled`.
    #[must_use]
    pub(crate) fn cancel_token(&self) -> CancellationToken {
        self.run.cancel.clone()
    }

    /// Says what goes on, with the share that is done (0 to 1) where that is known. It is not recorded.
    pub(crate) fn progress(&self, text: &str, fraction: Option<f64>) {
        self.run.tell(What::Progress { step: Some(self.key.clone()), text: text.to_owned(), fraction });
    }

    /// Records the provider's own task, for a later run of this step.
    ///
    /// # Errors
    /// `Unavailable` when it could not be recorded.
    pub(crate) async fn save_task(&self, task: &str) -> Result<()> {
        self.run.point(&self.key, "save task").await;
        self.run.inner.store.write(|tx| rows::set_task(tx, self.run.op.n, &self.key, task))?;
        self.run.point(&self.key, "saved task").await;
        Ok(())
    }

    /// Writes to the database now, before the step's end, such as what is claimed. It may happen again in a later run
    /// of this step, so it is safe to repeat.
    ///
    /// # Errors
    /// What `f` returns; `Unavailable` when it could not be written.
    pub(crate) async fn write<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.run.point(&self.key, "write within").await;
        let value = self.run.inner.store.write(f)?;
        self.run.point(&self.key, "wrote within").await;
        Ok(value)
    }
}
