//! Registering what a journal runs.

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex},
};

use rusqlite::Connection;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Context, Ended, Halt, Journal,
    drive::{Inner, OnEnd, OperationFn},
    halt::Why,
    undo::UndoFn,
};
use crate::{
    env::Env,
    error::{Error, Result},
    store::Store,
};

/// How many events a slow receiver may be behind.
const EVENTS: usize = 1024;

/// A journal whose operations are being registered.
pub(crate) struct JournalBuilder {
    store: Arc<Store>,
    env: Arc<dyn Env>,
    functions: BTreeMap<(String, u32), OperationFn>,
    undos: BTreeMap<String, UndoFn>,
    on_end: OnEnd,
}

impl fmt::Debug for JournalBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalBuilder").field("operations", &self.functions.keys()).finish_non_exhaustive()
    }
}

impl JournalBuilder {
    pub(super) fn new(store: Arc<Store>, env: Arc<dyn Env>) -> Self {
        let (functions, undos) = (BTreeMap::new(), BTreeMap::new());
        Self { store, env, functions, undos, on_end: Box::new(|_, _| Ok(())) }
    }

    /// Registers the function of one version of a kind of operation. When a function changes in what it asks for, it
    /// becomes a new version, and the old one stays until none of its operations is live.
    #[must_use]
    pub(crate) fn operation<A, R, F, Fut>(mut self, kind: &str, version: u32, f: F) -> Self
    where
        A: DeserializeOwned,
        R: Serialize,
        F: Fn(Context, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Halt>> + Send + 'static,
    {
        let function: OperationFn = Arc::new(move |context, args| {
            let future = serde_json::from_value(args).map(|args| f(context, args));
            Box::pin(async move {
                let future = future.map_err(|error| Halt(Why::Unfit(format!("its arguments: {error}"))))?;
                let result = future.await?;
                serde_json::to_value(result).map_err(|error| Halt(Why::Unfit(format!("its result: {error}"))))
            })
        });
        self.functions.insert((kind.to_owned(), version), function);
        self
    }

    /// Registers what undoes a kind of effect, told how many runs of it began before. It is safe to repeat, and succeeds when there is nothing to undo.
    #[must_use]
    pub(crate) fn undo<P, F, Fut>(mut self, kind: &str, f: F) -> Self
    where
        P: DeserializeOwned,
        F: Fn(u32, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let name = kind.to_owned();
        let handler: UndoFn = Arc::new(move |tries, payload| {
            let future = serde_json::from_value(payload).map(|payload| f(tries, payload));
            let name = name.clone();
            Box::pin(async move {
                match future {
                    Ok(future) => future.await,
                    Err(error) => {
                        Err(Error::failed(format!("what undo {name:?} was given does not fit"))
                            .because(error))
                    }
                }
            })
        });
        self.undos.insert(kind.to_owned(), handler);
        self
    }

    /// What every operation's end means for the records, in the transaction that ends it: what it reserved or pinned
    /// ends here, and what it wrote part way is set right.
    #[must_use]
    pub(crate) fn on_end(
        mut self,
        f: impl Fn(&Connection, &Ended) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.on_end = Box::new(f);
        self
    }

    /// The journal. Nothing is driven until [`Journal::resume`] or [`Journal::begin`].
    #[must_use]
    pub(crate) fn build(self) -> Arc<Journal> {
        let Self { store, env, functions, undos, on_end } = self;
        Arc::new(Journal {
            inner: Arc::new(Inner {
                store,
                env,
                functions,
                undos,
                on_end,
                events: broadcast::channel(EVENTS).0,
                driven: Mutex::default(),
                driving: watch::channel(0).0,
                closing: CancellationToken::new(),
                cut: CancellationToken::new(),
                waits: Mutex::default(),
            }),
        })
    }
}
