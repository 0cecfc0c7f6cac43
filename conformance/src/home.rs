//! An install over the provider under test: the core, as a program uses it, in a folder of its own.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bbbox::{
    Result,
    backend::Backend,
    boxes::{Acquire, BoxHandle, Boxes},
    embed::{Embedder, ThreadState},
    env::{Env, SystemEnv},
    error::{Error, ErrorKind},
    guest::Guest,
    id::{InstallId, ThreadId},
    record::BoxState,
    run::{Ended, JobSpec, RunResult},
    size::{Size, SizeChoice},
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use tempfile::TempDir;

use crate::{
    case::{Stop, Verdict, ensure_eq, failed},
    lab::Lab,
};

/// One install.
pub(crate) struct Home {
    lab: Lab,
    install: InstallId,
    folder: TempDir,
    threads: Arc<Threads>,
    clock: Arc<Clock>,
    boxes: Option<Boxes>,
}

impl Home {
    /// The lab's install over a handle of its own.
    pub(crate) fn new(lab: &Lab) -> Verdict<Self> {
        Self::over(lab, lab.fresh()?)
    }

    /// The same over a handle that the case made.
    pub(crate) fn over(lab: &Lab, backend: Arc<dyn Backend>) -> Verdict<Self> {
        Self::of(lab, lab.install(), Some(backend))
    }

    /// The lab's other install.
    pub(crate) fn other(lab: &Lab) -> Verdict<Self> {
        Self::of(lab, lab.other(), Some(lab.fresh()?))
    }

    fn of(lab: &Lab, install: &InstallId, backend: Option<Arc<dyn Backend>>) -> Verdict<Self> {
        lab.leaves_nothing();
        let mut home = Self {
            lab: lab.clone(),
            install: install.clone(),
            folder: folder()?,
            threads: Arc::default(),
            clock: Arc::default(),
            boxes: None,
        };
        home.boxes = Some(home.open(backend)?);
        Ok(home)
    }

    fn open(&self, backend: Option<Arc<dyn Backend>>) -> Result<Boxes> {
        let mut builder = Boxes::builder()
            .data(self.folder.path())
            .embedder(Arc::clone(&self.threads) as Arc<dyn Embedder>)
            .env(Arc::clone(&self.clock) as Arc<dyn Env>);
        if let Some(backend) = backend {
            builder = builder.backend(backend);
        }
        let boxes = builder.open()?;
        boxes.set_install_id(&self.install)?;
        Ok(boxes)
    }

    /// The program ends and begins again over the same folder.
    pub(crate) async fn restart(&mut self) -> Verdict {
        let backend = self.lab.fresh()?;
        self.restart_with(Some(backend)).await
    }

    /// The same, over another backend or none.
    pub(crate) async fn restart_with(&mut self, backend: Option<Arc<dyn Backend>>) -> Verdict {
        self.end().await?;
        loop {
            match self.open(backend.clone()) {
                // The last task of the program that ended may still be letting go of the folder.
                Err(error) if error.kind() == ErrorKind::Busy => {
                    self.lab.see(error.chain());
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                opened => {
                    self.boxes = Some(opened?);
                    return Ok(());
                }
            }
        }
    }

    /// The program ends, once what it does is done.
    async fn end(&mut self) -> Verdict {
        let Some(boxes) = self.boxes.take() else { return Ok(()) };
        ensure_eq!(boxes.close(Duration::from_secs(60)).await, 0, "how many operations were cut off");
        Ok(())
    }

    /// Everything in the folder is lost, and the program begins again under the same install.
    pub(crate) async fn lose_everything(&mut self) -> Verdict {
        self.end().await?;
        self.folder = folder()?;
        self.restart().await
    }

    /// Time passes for the install: its clock goes on, and nothing is waited for.
    pub(crate) fn pass(&self, time: Duration) {
        self.clock.0.fetch_add(time.as_millis().try_into().unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// What the program around it says about threads.
    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    pub(crate) fn boxes(&self) -> &Boxes {
        // It is none only within this file's own functions.
        self.boxes.as_ref().unwrap_or_else(|| unreachable!("it is open"))
    }

    /// A request for a box of the size of the cases' boxes.
    pub(crate) fn request(&self) -> Acquire {
        let abilities = self.lab.abilities();
        Acquire::kind(abilities.offer.kind.as_str()).size(SizeChoice::Custom(abilities.size))
    }

    /// Acquires a box.
    pub(crate) async fn acquire(&self) -> Verdict<BoxHandle> {
        Ok(self.boxes().acquire(self.request()).await?)
    }

    /// Sweeps, and fails when it could not see or do something.
    pub(crate) async fn sweep(&self) -> Verdict<Vec<String>> {
        Ok(self.boxes().sweep().await?.into_result()?.done)
    }

    /// A sweep finds nothing to do, and the records and the guests are of the same boxes.
    pub(crate) async fn is_quiet(&self) -> Verdict {
        ensure_eq!(self.sweep().await?, Vec::<String>::new(), "what a sweep still did");
        let mut recorded: Vec<_> = self
            .boxes()
            .list()?
            .into_iter()
            .filter(|record| record.state != BoxState::Gone)
            .filter_map(|record| record.guest)
            .map(|guest| (guest.box_id, guest.reference))
            .collect();
        let mut held: Vec<_> = self
            .lab
            .backend()
            .held(&self.install)
            .await?
            .into_iter()
            .map(|held| (held.owner.box_id, held.guest.reference))
            .collect();
        recorded.sort();
        held.sort();
        ensure_eq!(held, recorded, "the guests at the provider");
        Ok(())
    }
}

/// Gives the box another size, stopped for it where its provider must.
pub(crate) async fn resize(lab: &Lab, handle: &BoxHandle, size: Size) -> Verdict {
    let stop = lab.resize()?.needs_stop();
    if stop {
        handle.stop(false).await?;
    }
    handle.resize(&SizeChoice::Custom(size)).await?;
    if stop {
        handle.start().await?;
    }
    Ok(())
}

/// Gives `body` a box of its own.
pub(crate) fn in_a_box(
    lab: Lab,
    body: fn(BoxHandle) -> BoxFuture<'static, Verdict>,
) -> BoxFuture<'static, Verdict> {
    Box::pin(async move {
        let home = Home::new(&lab)?;
        let handle = home.acquire().await?;
        let verdict = body(handle.clone()).await;
        handle.release(true).await?;
        verdict
    })
}

/// The guest that a box's record names.
pub(crate) fn guest_of(handle: &BoxHandle) -> Verdict<Guest> {
    handle.record()?.guest.ok_or_else(|| Stop::Failed("the box's record names no guest".to_owned()))
}

/// The state in a box's record.
pub(crate) fn state_of(handle: &BoxHandle) -> Verdict<BoxState> {
    Ok(handle.record()?.state)
}

/// Runs a command to its end.
pub(crate) async fn ran(handle: &BoxHandle, spec: JobSpec) -> Verdict<Ended> {
    match handle.run(spec).await? {
        RunResult::Ended(ended) => Ok(ended),
        RunResult::Running(job) => failed(format!("the command goes on as {job}")),
    }
}

/// Runs a script that succeeds, and returns its output without the last line's end.
pub(crate) async fn out(handle: &BoxHandle, script: &str) -> Verdict<String> {
    let ended = ran(handle, JobSpec::script(script)).await?;
    if !ended.exit.success() {
        let words = String::from_utf8_lossy(&ended.stderr.head).into_owned();
        return failed(format!("{script:?}: {}, and said {words:?}", ended.exit));
    }
    let text = ended.stdout.whole().ok_or_else(|| Stop::Failed("the output was cut".to_owned()))?;
    Ok(String::from_utf8_lossy(&text).trim_end_matches('\n').to_owned())
}

/// The answer is an error of this kind with a word on what to do.
pub(crate) fn refused<T>(answer: Result<T>, kind: ErrorKind, what: &str) -> Verdict<Error> {
    match answer {
        Ok(_) => failed(format!("{what} was done, and should be {}", kind.as_str())),
        Err(error) => {
            ensure_eq!(error.kind(), kind, "the kind of the error of {what} ({:?})", error.chain());
            Ok(error)
        }
    }
}

fn folder() -> Verdict<TempDir> {
    Ok(TempDir::with_prefix("bbbox-home-")?)
}

/// The machine's clocks and chance, milliseconds ahead.
#[derive(Default)]
struct Clock(AtomicU64);

impl Clock {
    fn ahead(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

impl Env for Clock {
    fn now(&self) -> Timestamp {
        SystemEnv.now() + self.ahead()
    }

    fn elapsed(&self) -> Duration {
        SystemEnv.elapsed() + self.ahead()
    }

    fn random(&self) -> u64 {
        SystemEnv.random()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        SystemEnv.sleep(time)
    }

    fn point(&self, at: &str) -> BoxFuture<'static, ()> {
        SystemEnv.point(at)
    }
}

/// A program whose threads stand as a case says.
#[derive(Default)]
pub(crate) struct Threads {
    answers: Mutex<Vec<(ThreadId, ThreadState)>>,
    silent: AtomicBool,
}

impl Threads {
    /// How `thread` stands from now on; a thread of which nothing was said is live.
    pub(crate) fn say(&self, thread: &ThreadId, state: ThreadState) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|(of, _)| of != thread);
        answers.push((thread.clone(), state));
    }

    /// Whether it answers at all.
    pub(crate) fn be_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
    }
}

#[async_trait]
impl Embedder for Threads {
    async fn thread(&self, thread: &ThreadId) -> Result<ThreadState> {
        if self.silent.load(Ordering::SeqCst) {
            return Err(Error::unavailable("the program does not say how its threads stand"));
        }
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(answers.iter().find(|(of, _)| of == thread).map_or(ThreadState::Live, |(_, state)| *state))
    }

    async fn tell(&self, _thread: &ThreadId, _message: &str) -> Result<()> {
        Ok(())
    }
}
