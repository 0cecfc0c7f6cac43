//! The runners of this process: one for each box that is in use.
//!
//! A runner is started when a command needs it and closes after two idle minutes. One that is lost is replaced by
//! the next command. When a start fails, everyone who was waiting for it gets the same error.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use super::{open, runner::Runner, session::Session};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Result},
    id::{BoxId, JobId},
    kind::Shell,
    transport::Transport,
};

/// How a box's transport is found. It is asked anew whenever contact must be made.
#[async_trait]
pub(crate) trait Dial: Send + Sync {
    /// The transport to the box as it is now.
    ///
    /// - *Errors*: `Gone`, `Refused` when the box is stopped, `Unavailable`.
    async fn dial(&self) -> Result<Arc<dyn Transport>>;

    /// Whether who holds the session may still reach in: boxes are handed on, and runners are shared.
    ///
    /// - *Errors*: `Gone`.
    fn allowed(&self) -> Result<()> {
        Ok(())
    }

    /// Hears how each call of a session came out: of kind `Unavailable` when the box does not answer.
    async fn came_out(&self, error: Option<&Error>) {
        let _ = error;
    }

    /// The words for a box that turned out not to be there.
    fn gone(&self, error: Error) -> Error {
        error
    }
}

/// A transport that is the same at every time.
#[async_trait]
impl Dial for Arc<dyn Transport> {
    async fn dial(&self) -> Result<Arc<dyn Transport>> {
        Ok(Arc::clone(self))
    }
}

/// The transport to a box as it is now, if jobs and copies can be run in it.
pub(super) async fn dial_sh(dial: &dyn Dial) -> Result<Arc<dyn Transport>> {
    let transport = dial.dial().await?;
    needs_sh(transport.traits().shell)?;
    Ok(transport)
}

/// Refuses a box whose shell runs no jobs.
pub(crate) fn needs_sh(shell: Shell) -> Result<()> {
    match shell {
        Shell::Sh => Ok(()),
        Shell::Powershell => Err(Error::refused(
            "commands, jobs and copies need a POSIX shell in the box, and this one has PowerShell",
        )
        .fix("use a kind with a POSIX shell, or send PowerShell scripts over the box's own transport")),
    }
}

/// The runners of this process. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Runners(Arc<Pool>);

struct Pool {
    env: Arc<dyn Env>,
    boxes: Mutex<BTreeMap<BoxId, Arc<Slot>>>,
}

impl fmt::Debug for Runners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Runners")
    }
}

impl Runners {
    /// No runners yet.
    #[must_use]
    pub(crate) fn new(env: Arc<dyn Env>) -> Self {
        Self(Arc::new(Pool { env, boxes: Mutex::default() }))
    }

    /// A handle for commands and files in one box. Makes no connection yet.
    #[must_use]
    pub(crate) fn session(&self, id: &BoxId, dial: Arc<dyn Dial>) -> Session {
        let slot = Arc::clone(lock(&self.0.boxes).entry(id.clone()).or_default());
        Session::new(Arc::clone(&self.0.env), slot, dial)
    }

    /// Closes the runner of a box that is stopped or handed on, and has each session look again whether its holder
    /// may reach in. Jobs are not touched.
    pub(crate) fn close(&self, id: &BoxId) {
        if let Some(slot) = lock(&self.0.boxes).get(id) {
            slot.give_up();
        }
    }

    /// As [`Self::close`], for a box that is no more.
    pub(crate) fn forget(&self, id: &BoxId) {
        if let Some(slot) = lock(&self.0.boxes).remove(id) {
            slot.give_up();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many job directories are made ahead.
const AHEAD: usize = 8;
/// Commands that follow each other faster than this have what is to be removed removed together: a process for each
/// would cost a fifth of a command.
const BURST: Duration = Duration::from_millis(100);
/// How often jobs that are 7 days old are looked for.
const TIDY_EVERY: Duration = Duration::from_hours(6);

/// One box's runner, and what is remembered between its commands.
#[derive(Default)]
pub(super) struct Slot {
    gate: tokio::sync::Mutex<Gate>,
    /// The same runner as in the gate, for those who must not wait.
    current: Mutex<Option<Arc<Runner>>>,
    /// Starts that were begun: whoever waited through one that failed shares its error.
    round: std::sync::atomic::AtomicU64,
    notes: Mutex<Notes>,
    /// Counts how often the runner was closed from outside.
    closes: tokio::sync::watch::Sender<u64>,
}

#[derive(Default)]
struct Gate {
    runner: Option<Arc<Runner>>,
    failed: Option<(u64, Error)>,
}

#[derive(Default)]
struct Notes {
    /// IDs whose directories the current runner was asked to make.
    ahead: VecDeque<JobId>,
    /// Whether the current runner had a command already: most of those that have one have no second.
    used: bool,
    /// Jobs whose whole result the caller has: the next command removes them.
    fetched: Vec<JobId>,
    /// When jobs were last removed, and old ones last looked for, as [`Env::elapsed`] counts.
    removed: Option<Duration>,
    tidied: Option<Duration>,
}

impl Slot {
    /// The box's runner, started when there is none that answers.
    pub(super) async fn runner(&self, env: &Arc<dyn Env>, dial: &dyn Dial) -> Result<Arc<Runner>> {
        use std::sync::atomic::Ordering::Relaxed;
        let came = self.round.load(Relaxed);
        let mut gate = self.gate.lock().await;
        if let Some(runner) = gate.runner.as_ref().filter(|runner| !runner.is_lost()) {
            return Ok(Arc::clone(runner));
        }
        if let Some((round, error)) = &gate.failed
            && *round > came
        {
            return Err(error.clone());
        }
        gate.runner = None;
        *lock(&self.current) = None;
        let round = self.round.fetch_add(1, Relaxed) + 1;
        let opened = async { open::open(Arc::clone(env), &*dial_sh(dial).await?).await }.await;
        let opened =
            opened.map_err(|error| if error.kind() == ErrorKind::Gone { dial.gone(error) } else { error });
        match opened {
            Ok(runner) => {
                gate.failed = None;
                gate.runner = Some(Arc::clone(&runner));
                *lock(&self.current) = Some(Arc::clone(&runner));
                let mut notes = lock(&self.notes);
                (notes.ahead, notes.used) = (VecDeque::new(), false);
                drop(notes);
                Ok(runner)
            }
            Err(error) => {
                gate.failed = Some((round, error.clone()));
                Err(error)
            }
        }
    }

    /// Wakes at each close from outside.
    pub(super) fn closes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.closes.subscribe()
    }

    fn give_up(&self) {
        self.closes.send_modify(|count| *count += 1);
        if let Some(runner) = lock(&self.current).take() {
            runner.shared.give_up();
        }
    }

    /// An ID for a new job: one whose directory is there already, where there is one.
    pub(super) fn job_id(&self, env: &dyn Env) -> JobId {
        lock(&self.notes).ahead.pop_front().unwrap_or_else(|| JobId::draw(|| env.random()))
    }

    pub(super) fn fetched(&self, job: &JobId) {
        let mut notes = lock(&self.notes);
        if !notes.fetched.contains(job) {
            notes.fetched.push(job.clone());
        }
    }

    /// What a command does beside its own work: removes the jobs whose result is fetched, now and then those
    /// older than 7 days, and makes directories ahead.
    pub(super) async fn keep_house(&self, env: &dyn Env, runner: &Runner, command: &JobId) {
        let (make, remove, tidy) = {
            let mut notes = lock(&self.notes);
            let now = env.elapsed();
            let tidy = notes.tidied.is_none_or(|at| now.saturating_sub(at) > TIDY_EVERY);
            if tidy {
                notes.tidied = Some(now);
            }
            let again = std::mem::replace(&mut notes.used, true);
            let make: Vec<JobId> = if again && notes.ahead.len() <= AHEAD / 4 {
                (0..AHEAD).map(|_| JobId::draw(|| env.random())).collect()
            } else {
                Vec::new()
            };
            notes.ahead.extend(make.iter().cloned());
            let mut remove = Vec::new();
            if notes.fetched.len() >= AHEAD || notes.removed.is_none_or(|at| now.saturating_sub(at) >= BURST)
            {
                // The command itself may be one whose result was fetched before, asked for again by its ID.
                (notes.fetched, remove) = notes.fetched.drain(..).partition(|job| job == command);
                notes.removed = Some(now);
            }
            (make, remove, tidy)
        };
        // When the runner is lost, the directories stay until they are 7 days old, and IDs need none made ahead.
        let _ = runner.keep_house(&make, &remove, tidy).await;
    }
}
