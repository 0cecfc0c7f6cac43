//! What an operation's function is given: the calls that are recorded.

use std::{fmt, sync::Arc};

use rusqlite::Connection;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Halt, What,
    halt::ATTEMPTS,
    replay::{Past, Run, Wrong},
    step::{Attempt, Plain, Reach, StepBuilder},
};
use crate::{error::Result, id::OperationId};

/// An operation's side of the journal.
///
/// The function may be called many times: after a crash, and for each retry of a step. It is called from the top;
/// steps that are recorded return what was recorded. So what it does **between** steps depends on its arguments and
/// on steps' results alone: no clock, no chance, no database, no provider.
///
/// Steps are known by name. Steps that run side by side are joined, never raced, and each member has a
/// [`Context::branch`] of its own.
#[derive(Clone)]
pub(crate) struct Context {
    run: Arc<Run>,
    scope: String,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("operation", self.id()).field("scope", &self.scope).finish()
    }
}

impl Context {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self { run, scope: String::new() }
    }

    /// The operation.
    #[must_use]
    pub(crate) fn id(&self) -> &OperationId {
        &self.run.op.id
    }

    /// Names of its own for one member of a join, so that a replay does not depend on who is polled first.
    #[must_use]
    #[cfg_attr(not(test), expect(dead_code, reason = "no operation has steps side by side yet"))]
    pub(crate) fn branch(&self, name: &str) -> Self {
        assert!(!name.is_empty() && !name.contains(['/', '#']), "{name:?} is no name for a branch");
        Self { run: self.run.clone(), scope: format!("{}{name}/", self.scope) }
    }

    /// Says what goes on, with the share that is done (0 to 1) where that is known. It is not recorded.
    pub(crate) fn progress(&self, text: &str, fraction: Option<f64>) {
        self.run.tell(What::Progress { step: None, text: text.to_owned(), fraction });
    }

    /// A step that only writes to the database: `f` runs in the transaction that records it, so exactly once.
    ///
    /// # Errors
    /// [`Halt`], when `f` failed for good or the function must return.
    pub(crate) async fn write<T>(
        &self,
        name: &str,
        f: impl FnOnce(&Connection) -> Result<T>,
    ) -> Result<T, Halt>
    where
        T: Serialize + DeserializeOwned,
    {
        let run = &self.run;
        let todo = match run.enter(&self.scope, name)? {
            Past::Done(value) => return Ok(value),
            Past::Todo(todo) => todo,
        };
        run.point(&todo.key, "write").await;
        let began = run.begin();
        let written = run.transact(&todo, |tx| {
            let value = f(tx).map_err(Wrong::without_effect)?;
            run.done(tx, &todo, &value, began)?;
            Ok(value)
        });
        match written {
            Ok(value) => {
                run.tell_done(&todo, began);
                run.point(&todo.key, "wrote").await;
                Ok(value)
            }
            Err(wrong) => Err(run.went_wrong(&todo, ATTEMPTS, began, wrong).await),
        }
    }

    /// A step that looks, and then decides in the transaction that records the decision.
    ///
    /// `see` changes nothing, and what it saw is not recorded: after a crash it looks again. `choose` sees the
    /// database as it is when the decision is recorded, so what it decides still holds then.
    ///
    /// # Errors
    /// [`Halt`], when either failed for good or the function must return.
    pub(crate) async fn decide<S, T>(
        &self,
        name: &str,
        see: impl AsyncFnOnce(Attempt) -> Result<S>,
        choose: impl FnOnce(&Connection, S) -> Result<T>,
    ) -> Result<T, Halt>
    where
        T: Serialize + DeserializeOwned,
    {
        let run = &self.run;
        let todo = match run.enter(&self.scope, name)? {
            Past::Done(value) => return Ok(value),
            Past::Todo(todo) => todo,
        };
        run.point(&todo.key, "look").await;
        let began = run.begin();
        if let Err(wrong) = run.transact(&todo, |_| Ok(())) {
            return Err(run.went_wrong(&todo, ATTEMPTS, began, wrong).await);
        }
        run.tell(What::StepStarted { step: todo.key.clone(), tries: todo.tries });
        let decided = match see(Attempt::new(run.clone(), &todo)).await {
            Err(error) => Err(Wrong::without_effect(error)),
            Ok(seen) => {
                run.point(&todo.key, "decide").await;
                run.transact(&todo, |tx| {
                    let value = choose(tx, seen).map_err(Wrong::without_effect)?;
                    run.done(tx, &todo, &value, began)?;
                    Ok(value)
                })
            }
        };
        match decided {
            Ok(value) => {
                run.tell_done(&todo, began);
                run.point(&todo.key, "decided").await;
                Ok(value)
            }
            Err(wrong) => Err(run.went_wrong(&todo, ATTEMPTS, began, wrong).await),
        }
    }

    /// A step with an effect outside the database.
    ///
    /// Once a step that has an effect and no undo began, the operation only goes forward: it can no longer be
    /// cancelled, and when it fails it ends unknown.
    #[must_use = "a step does nothing until it is run"]
    pub(crate) fn step(&self, name: &str) -> StepBuilder<Plain> {
        StepBuilder::new(self.run.clone(), &self.scope, name, Reach::Acts)
    }

    /// A step outside the database without an effect: it needs no undo.
    #[must_use = "a step does nothing until it is run"]
    pub(crate) fn look(&self, name: &str) -> StepBuilder<Plain> {
        StepBuilder::new(self.run.clone(), &self.scope, name, Reach::Looks)
    }
}
