//! A simulated provider in memory: guests, room, latency, and references that are used again.
//!
//! It promises what real providers do and no more: references are small numbers, the lowest free one is taken, and a
//! guest's processes are real ones of this machine, without any isolation. Every handle made by
//! [`Provider::backend`] sees the same provider. Faults come from a wrapper around a handle, never from here.

mod backend;
mod transport;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bbbox::{
    Result,
    backend::Backend,
    error::{Error, ErrorKind},
    guest::{Guest, Owner},
    id::BackendId,
    size::Size,
};
use tempfile::TempDir;

/// How a simulated provider is.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The backend's ID.
    pub id: &'static str,
    /// Memory for guests that run, in MiB.
    pub memory_mib: u64,
    /// The most guests, running or stopped.
    pub guests: u64,
    /// How long each call takes.
    pub call: Duration,
    /// How long a guest takes to be made.
    pub make: Duration,
}

impl Default for Shape {
    /// 64 GiB for 16 guests; a call takes 1 ms and a guest 20 ms.
    fn default() -> Self {
        Self {
            id: "sim",
            memory_mib: 64 * 1024,
            guests: 16,
            call: Duration::from_millis(1),
            make: Duration::from_millis(20),
        }
    }
}

/// One simulated provider.
#[derive(Debug)]
pub struct Provider {
    id: BackendId,
    shape: Shape,
    dir: TempDir,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    guests: BTreeMap<u64, Machine>,
    /// How many guests there ever were: what tells one from the next with the same reference.
    made: u64,
    most_at_once: u64,
}

/// One simulated guest.
#[derive(Clone, Debug)]
struct Machine {
    owner: Owner,
    size: Size,
    running: bool,
    /// Whether it shut itself down.
    by_guest: bool,
    birth: u64,
}

impl Provider {
    /// A provider with no guests.
    ///
    /// # Errors
    /// `Invalid` when the shape's ID is none, `Failed` when this machine has no room for the guests' files.
    pub fn new(shape: Shape) -> Result<Arc<Self>> {
        let dir = TempDir::with_prefix("bbbox-sim-")
            .map_err(|e| Error::failed("could not make a folder for simulated guests").because(e))?;
        Ok(Arc::new(Self { id: BackendId::parse(shape.id)?, shape, dir, state: Mutex::default() }))
    }

    /// A handle on it.
    #[must_use]
    pub fn backend(self: &Arc<Self>) -> Arc<dyn Backend> {
        Arc::new(backend::Sim(Arc::clone(self)))
    }

    /// How many guests there are, of every install.
    #[must_use]
    pub fn guests(&self) -> usize {
        self.state().guests.len()
    }

    /// The most memory in MiB that running guests ever had at once.
    #[must_use]
    pub fn most_memory_at_once(&self) -> u64 {
        self.state().most_at_once
    }

    /// Shuts a guest down as a command in it would.
    pub fn shut_down(&self, guest: &Guest) {
        let mut state = self.state();
        if let Some(machine) = owned(&mut state, guest) {
            (machine.running, machine.by_guest) = (false, true);
        }
    }

    /// Ends a guest as a fault of its host would; whether it was there.
    pub fn crash(&self, guest: &Guest) -> bool {
        owned(&mut self.state(), guest)
            .map(|machine| (machine.running, machine.by_guest) = (false, false))
            .is_some()
    }

    /// Makes another guest with the same owner, as a person who copies a guest does; `None` when it is not there.
    ///
    /// # Errors
    /// `NoCapacity` when there is no room for it, `Failed` when this machine has none for its files.
    pub fn twin(&self, guest: &Guest) -> Result<Option<Guest>> {
        let mut state = self.state();
        let Some(machine) = owned(&mut state, guest).cloned() else { return Ok(None) };
        state.fits(&self.shape, &machine.size)?;
        state.made += 1;
        let twin = Machine { birth: state.made, ..machine };
        std::fs::create_dir(self.home(&twin))
            .map_err(|e| Error::failed("could not make a guest's home").because(e))?;
        let reference = state.lowest_free();
        let made = handle(reference, &twin);
        state.guests.insert(reference, twin);
        state.note_most();
        Ok(Some(made))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn home(&self, machine: &Machine) -> PathBuf {
        self.dir.path().join(machine.birth.to_string())
    }

    /// The guest as the provider has it, if it is that install's and that box's.
    fn machine(&self, guest: &Guest) -> Option<Machine> {
        owned(&mut self.state(), guest).cloned()
    }
}

fn owned<'a>(state: &'a mut State, guest: &Guest) -> Option<&'a mut Machine> {
    let machine = state.guests.get_mut(&guest.reference.parse().ok()?)?;
    (machine.owner.install == guest.install && machine.owner.box_id == guest.box_id).then_some(machine)
}

impl State {
    fn memory(&self) -> u64 {
        self.guests.values().filter(|machine| machine.running).map(|machine| machine.size.memory_mib).sum()
    }

    fn lowest_free(&self) -> u64 {
        (100..).find(|number| !self.guests.contains_key(number)).unwrap_or_default()
    }

    /// Takes memory for one that begins to run.
    fn fits(&self, shape: &Shape, more: &Size) -> Result<()> {
        if self.memory() + more.memory_mib <= shape.memory_mib {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::NoCapacity,
            format!("memory is full: {} of {} MiB", self.memory(), shape.memory_mib),
        ))
    }

    fn note_most(&mut self) {
        self.most_at_once = self.most_at_once.max(self.memory());
    }
}

fn handle(reference: u64, machine: &Machine) -> Guest {
    Guest {
        install: machine.owner.install.clone(),
        box_id: machine.owner.box_id.clone(),
        reference: reference.to_string(),
        host: None,
        address: None,
        size: machine.size,
        data: BTreeMap::new(),
        facts: BTreeMap::from([("isolation".to_owned(), "none: a simulated guest".to_owned())]),
    }
}
