//! Drivers: the types of backends that a program was built with.
//!
//! A [`Driver`] checks a backend's own fields in the configuration and builds the backend from them. A backend's crate
//! writes one struct for those fields and [`Settings`] for it; [`Drivers::with`] makes a driver of that. Building makes
//! no connection: a program that only lists boxes starts as fast as without.

use std::{ffi::OsString, fmt, marker::PhantomData, path::PathBuf, sync::Arc};

use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    backend::Backend,
    config::{BackendEntry, Document, Problem, schema},
    env::Env,
    error::{Error, Result},
    id::BackendId,
};

/// What a driver builds a backend with.
#[derive(Clone)]
pub struct DriverDeps {
    /// The program's folder; a backend that keeps files keeps them below a folder of its own in it.
    pub data_dir: PathBuf,
    /// Where what is slow to make may be kept for the next time; it may be deleted at any time.
    pub cache_dir: PathBuf,
    /// Time and chance.
    pub env: Arc<dyn Env>,
    /// The variables that the program lets its backends read.
    pub variables: Variables,
}

/// The variables of its environment that a program lets its backends read: none, unless it says so.
///
/// A backend reads one only where its own fields in the configuration leave something open that its provider's own
/// command takes from there.
#[derive(Clone, Default)]
pub struct Variables(Option<Arc<Look>>);

type Look = dyn Fn(&str) -> Option<OsString> + Send + Sync;

impl Variables {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::from_fn(|name| std::env::var_os(name))
    }

    /// Those that `look` finds by their name.
    #[must_use]
    pub fn from_fn(look: impl Fn(&str) -> Option<OsString> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(look)))
    }

    /// The value of `name`; an empty one is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<OsString> {
        self.0.as_ref().and_then(|look| look(name)).filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Variables" } else { "no variables" })
    }
}

impl fmt::Debug for DriverDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverDeps")
            .field("data_dir", &self.data_dir)
            .field("cache_dir", &self.cache_dir)
            .finish_non_exhaustive()
    }
}

/// One type of backend.
pub trait Driver: Send + Sync {
    /// The type, as the configuration names it: a lower-case letter, then `a-z`, `0-9` and `-`.
    fn backend_type(&self) -> &'static str;

    /// The JSON Schema of the type's own fields: an object, with no references in it.
    fn schema(&self) -> Schema;

    /// What is wrong with `fields`, which fit the schema. Reads neither the environment nor the disk.
    fn check(&self, fields: &Value) -> Vec<Problem>;

    /// What no second backend of this type may use as well, in words, such as the address of a host.
    fn alone(&self, fields: &Value) -> Option<String> {
        let _ = fields;
        None
    }

    /// Makes the backend. Makes no connection.
    ///
    /// # Errors
    /// `Invalid` when `fields` were not checked, `Failed` when what it needs on this machine is not there.
    fn build(&self, id: BackendId, fields: &Value, deps: &DriverDeps) -> Result<Arc<dyn Backend>>;
}

/// A backend's own fields in the configuration, and how it is built from them.
///
/// The struct takes `#[serde(deny_unknown_fields, rename_all = "kebab-case")]`; each field's doc comment says its unit
/// and its default, and goes into the published schema. An amount is a [`crate::config::Amount`].
pub trait Settings: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The type, as the configuration names it.
    const TYPE: &'static str;

    /// Every problem that the schema cannot see; paths begin at the backend's own fields.
    fn validate(&self) -> Vec<Problem>;

    /// What no second backend of this type may use as well, in words.
    fn alone(&self) -> Option<String> {
        None
    }

    /// Makes the backend. Makes no connection.
    ///
    /// # Errors
    /// `Failed` when what it needs on this machine is not there.
    fn build(self, id: BackendId, deps: &DriverDeps) -> Result<Arc<dyn Backend>>;
}

/// The driver that a [`Settings`] makes.
struct Typed<S>(PhantomData<fn() -> S>);

impl<S: Settings> Driver for Typed<S> {
    fn backend_type(&self) -> &'static str {
        S::TYPE
    }

    fn schema(&self) -> Schema {
        // Cannot fail: a schema of a type is an object or a boolean.
        Schema::try_from(schema::of_type::<S>()).unwrap_or_default()
    }

    fn check(&self, fields: &Value) -> Vec<Problem> {
        match S::deserialize(fields) {
            Ok(settings) => settings.validate(),
            Err(error) => vec![Problem::new("", error.to_string())],
        }
    }

    fn alone(&self, fields: &Value) -> Option<String> {
        S::deserialize(fields).ok().and_then(|settings| settings.alone())
    }

    fn build(&self, id: BackendId, fields: &Value, deps: &DriverDeps) -> Result<Arc<dyn Backend>> {
        let settings = S::deserialize(fields).map_err(|error| {
            Error::invalid(format!("the fields of backend {id} are not those of type {}", S::TYPE))
                .fix("look at the configuration (`bbbox config show`), mend it and apply it: `bbbox config apply FILE`")
                .because(error)
        })?;
        settings.build(id, deps)
    }
}

/// The drivers of a program, in the order in which their backends are tried when nothing is configured.
#[derive(Clone, Default)]
pub struct Drivers(Vec<Arc<dyn Driver>>);

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.types()).finish()
    }
}

impl Drivers {
    /// No drivers yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the driver that `S` makes; one of the same type gives way.
    #[must_use]
    pub fn with<S: Settings>(self) -> Self {
        self.and(Arc::new(Typed::<S>(PhantomData)))
    }

    /// Adds a driver; one of the same type gives way.
    #[must_use]
    pub fn and(mut self, driver: Arc<dyn Driver>) -> Self {
        self.0.retain(|other| other.backend_type() != driver.backend_type());
        self.0.push(driver);
        self
    }

    /// The driver of a type.
    #[must_use]
    pub fn get(&self, backend_type: &str) -> Option<&dyn Driver> {
        self.iter().find(|driver| driver.backend_type() == backend_type)
    }

    /// Every driver, in order.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Driver> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// The types there are, in order.
    pub fn types(&self) -> impl Iterator<Item = &'static str> {
        self.iter().map(Driver::backend_type)
    }

    /// What holds when nothing is configured: a backend of each type, named for it, with its defaults.
    ///
    /// A type whose fields have no defaults is left out: it does not work unconfigured.
    #[must_use]
    pub fn default_document(&self) -> Document {
        let nothing = Value::Object(serde_json::Map::new());
        let backends = self
            .iter()
            .filter(|driver| driver.check(&nothing).is_empty())
            .filter_map(|driver| {
                let backend_type = driver.backend_type();
                let id = BackendId::parse(backend_type).ok()?;
                let fields = serde_json::Map::new();
                Some(BackendEntry { id, backend_type: backend_type.to_owned(), on: true, fields })
            })
            .collect();
        Document { backends, ..Document::default() }
    }

    /// The JSON Schema of the whole document, each driver's fields included.
    #[must_use]
    pub fn config_schema(&self) -> Value {
        schema::of(self)
    }

    /// Makes the backend that `entry` describes.
    ///
    /// # Errors
    /// `Invalid` for a type that this program does not have, else the driver's.
    pub fn build(&self, entry: &BackendEntry, deps: &DriverDeps) -> Result<Arc<dyn Backend>> {
        let driver = self.get(&entry.backend_type).ok_or_else(|| {
            let types: Vec<_> = self.types().collect();
            Error::invalid(format!("backend {} is of type {:?}", entry.id, entry.backend_type))
                .fix(format!("use one of the types of this program: {}", types.join(", ")))
        })?;
        driver.build(entry.id.clone(), &Value::Object(entry.fields.clone()), deps)
    }
}

/// The trait stays usable as an object.
const _: fn(&dyn Driver) = |_| {};
