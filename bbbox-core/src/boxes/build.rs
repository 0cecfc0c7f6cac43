//! Putting an install together: its folder, its backends, and the program around it.

use std::{path::PathBuf, sync::Arc};

use tokio_util::task::AbortOnDropHandle;

use super::{Boxes, Caller, Shared};
use crate::{
    backend::Backend,
    config::{self, Document},
    driver::{DriverDeps, Drivers, Settings, Variables},
    embed::{Embedder, Standalone},
    env::{Env, SystemEnv},
    error::{Error, Result},
    id::InstallId,
    life, records,
    registry::{Entry, Registry},
    run::Runners,
    store::{Access, Store},
    sweep,
    world::{Parts, World},
};

/// Where an install's data is.
enum Data {
    /// In this folder.
    Folder(PathBuf),
    /// Nowhere: it ends with the value.
    Memory,
    /// In a store that is open already.
    #[cfg(feature = "simulation")]
    Open(Arc<Store>),
}

/// Puts [`Boxes`] together.
pub struct Builder {
    data: Data,
    cache: Option<PathBuf>,
    reading: bool,
    command: String,
    caller: Caller,
    drivers: Drivers,
    backends: Vec<Entry>,
    variables: Variables,
    embedder: Arc<dyn Embedder>,
    env: Arc<dyn Env>,
    upkeep: bool,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Builder with {:?} and {:?}", self.drivers, self.backends)
    }
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            data: Data::Memory,
            cache: None,
            reading: false,
            command: "a program that embeds bb-box".to_owned(),
            caller: Caller::Person,
            drivers: Drivers::new(),
            backends: Vec::new(),
            variables: Variables::default(),
            embedder: Arc::new(Standalone),
            env: Arc::new(SystemEnv),
            upkeep: false,
        }
    }

    /// Keeps everything in `folder`. Without it, all but the guests ends with the value.
    #[must_use]
    pub fn data(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data = Data::Folder(folder.into());
        self
    }

    /// Keeps everything in a store in memory that outlives the value.
    #[cfg(feature = "simulation")]
    #[must_use]
    pub fn memory(mut self, memory: &crate::simulation::Memory) -> Self {
        self.data = Data::Open(Arc::clone(&memory.0));
        self
    }

    /// Where what is slow to make is kept for the next time; below the data folder otherwise.
    #[must_use]
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// Opens the folder beside a process that owns it: boxes can be listed and used, and nothing changed.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.reading = true;
        self
    }

    /// What this process is, for whoever finds the folder in use.
    #[must_use]
    pub fn command(mut self, words: impl Into<String>) -> Self {
        self.command = words.into();
        self
    }

    /// Who asks through the value that is opened.
    #[must_use]
    pub fn caller(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }

    /// Takes the backends from the configuration; `S` is one type that it may name. Said once for each type, in
    /// the order in which they are tried when nothing is configured.
    #[must_use]
    pub fn with<S: Settings>(mut self) -> Self {
        self.drivers = self.drivers.with::<S>();
        self
    }

    /// Takes every type of `drivers` as [`Self::with`] does.
    #[must_use]
    pub fn drivers(mut self, drivers: Drivers) -> Self {
        self.drivers = drivers;
        self
    }

    /// Lets backends read variables of the environment where the configuration leaves open what their provider's own
    /// command takes from there. Without it none does: where a program's boxes are then stands in its configuration
    /// alone, and not in the shell that it was started from.
    #[must_use]
    pub fn variables(mut self, variables: Variables) -> Self {
        self.variables = variables;
        self
    }

    /// Adds a backend that no configuration describes. They are tried in the order in which they are added, before
    /// those of the configuration.
    #[must_use]
    pub fn backend(mut self, backend: Arc<dyn Backend>) -> Self {
        self.backends.push(Entry { backend, on: true });
        self
    }

    /// The program around bb-box; [`Standalone`] otherwise.
    #[must_use]
    pub fn embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = embedder;
        self
    }

    /// Time and chance; the machine's own otherwise.
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// Sweeps every three minutes and asks boxes that do not answer, for as long as the value lives.
    #[must_use]
    pub fn upkeep(mut self) -> Self {
        self.upkeep = true;
        self
    }

    /// Opens the install: what an earlier process left unfinished goes on at once.
    ///
    /// Must be called within a Tokio runtime.
    ///
    /// - *Promise* `a-folder-has-one-owner`: a second process reads, or is told who owns it.
    ///
    /// # Errors
    /// `Busy` when another process owns the folder, naming it; `Gone` when there is nothing to read yet; `Failed`.
    pub fn open(self) -> Result<Boxes> {
        let store = match &self.data {
            Data::Memory => Arc::new(Store::memory()?),
            #[cfg(feature = "simulation")]
            Data::Open(store) => Arc::clone(store),
            Data::Folder(folder) => {
                let own = Access::Own { command: &self.command };
                Arc::new(Store::open(folder, if self.reading { Access::Read } else { own })?)
            }
        };
        let stored = store.read(|db| config::load(db, &self.drivers))?;
        let install = match (store.read(records::install_id)?, self.reading) {
            (Some(id), _) => id,
            (None, true) => {
                return Err(Error::gone("there is no bb-box data in the folder yet")
                    .fix("acquire a box first: `bbbox acquire linux`"));
            }
            (None, false) => {
                let id = InstallId::draw(|| self.env.random());
                store.write(|tx| records::set_install_id(tx, &id))?;
                id
            }
        };
        let data_dir = match self.data {
            Data::Folder(folder) => std::path::absolute(&folder).map_err(|e| {
                Error::failed(format!("could not find the folder {}", folder.display())).because(e)
            })?,
            // Below the machine's folder for passing things: there is no data folder to outlive.
            #[cfg(feature = "simulation")]
            Data::Open(_) => std::env::temp_dir().join(format!("bb-box-{install}")),
            Data::Memory => std::env::temp_dir().join(format!("bb-box-{install}")),
        };
        let settings = SettingsInUse {
            drivers: self.drivers,
            deps: DriverDeps {
                cache_dir: self.cache.unwrap_or_else(|| data_dir.join("cache")),
                data_dir,
                env: Arc::clone(&self.env),
                variables: self.variables,
            },
            own: self.backends,
            document: std::sync::RwLock::new(stored.document),
            changing: std::sync::Mutex::new(()),
        };
        let world = Arc::new(World::new(Parts {
            runners: Runners::new(Arc::clone(&self.env)),
            registry: settings.registry(),
            store: Arc::clone(&store),
            env: Arc::clone(&self.env),
            embedder: self.embedder,
            install,
        }));
        let journal = life::journal(store, self.env, &world);
        let upkeep = if self.reading {
            None
        } else {
            journal.resume()?;
            self.upkeep.then(|| {
                let sweeping = sweep::keep_up(Arc::clone(&world), Arc::clone(&journal));
                let asking = sweep::keep_asking(Arc::clone(&world));
                [AbortOnDropHandle::new(tokio::spawn(sweeping)), AbortOnDropHandle::new(tokio::spawn(asking))]
            })
        };
        let shared =
            Shared { world, journal, reading: self.reading, settings, upkeep: std::sync::Mutex::new(upkeep) };
        Ok(Boxes { shared: Arc::new(shared), caller: self.caller })
    }
}

/// The configuration in use, and what it is turned into backends with.
pub(super) struct SettingsInUse {
    pub(super) drivers: Drivers,
    deps: DriverDeps,
    /// Backends that no configuration describes.
    own: Vec<Entry>,
    document: std::sync::RwLock<Document>,
    /// Held while a document is put in place, so that what is stored last is what is in use.
    pub(super) changing: std::sync::Mutex<()>,
}

impl SettingsInUse {
    /// The document in use.
    pub(super) fn document(&self) -> Document {
        self.document.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Puts another document in use; the registry is made from it by [`Self::registry`].
    pub(super) fn set_document(&self, document: Document) {
        *self.document.write().unwrap_or_else(std::sync::PoisonError::into_inner) = document;
    }

    /// The backends of the document in use. One that cannot be built keeps its place, with its error.
    pub(super) fn registry(&self) -> Registry {
        let mut entries = self.own.clone();
        let mut broken = Vec::new();
        for entry in self.document().backends {
            match self.drivers.build(&entry, &self.deps) {
                Ok(backend) => entries.push(Entry { backend, on: entry.on }),
                Err(error) => broken.push((entry.id, error)),
            }
        }
        Registry::new(entries, broken)
    }
}
