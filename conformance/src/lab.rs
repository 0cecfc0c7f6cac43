//! What a case works with: a handle on the provider, an install of its own, and the boxes it makes.
//!
//! Every box that a case claims is noted here and released when the case is over, however it ended.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bbbox::{
    Result,
    backend::{AcquireHooks, Backend, Earlier, Order, Relabel, ReleaseHooks, Resize, Switch},
    env::{Env, SystemEnv},
    error::Error,
    guest::{Guest, Held, Owner},
    id::{BoxId, BoxName, InstallId, ThreadId},
    transport::{Exit, Process, Transport},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::{
    ability::Abilities,
    case::{Stop, Verdict, failed},
    subject::Subject,
};

/// A case's place to work in. Cheap to clone.
#[derive(Clone)]
pub struct Lab(Arc<Inner>);

struct Inner {
    subject: Arc<dyn Subject>,
    backend: Arc<dyn Backend>,
    abilities: Abilities,
    install: InstallId,
    other: InstallId,
    claimed: Mutex<Vec<Guest>>,
    seen: Mutex<String>,
    leaves_nothing: AtomicBool,
    secrets: Secrets,
}

/// The secrets that a run used.
pub(crate) type Secrets = Arc<Mutex<Vec<String>>>;

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "lab of {}", self.0.install)
    }
}

/// A random number.
pub(crate) fn random() -> u64 {
    SystemEnv.random()
}

/// `length` bytes that no compression shortens, the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// A command that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) exit: Exit,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Said {
    /// What it wrote to stdout as text, without the last line's end.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    /// The same, when it succeeded.
    pub(crate) fn good(self, what: &str) -> Verdict<String> {
        if self.exit.success() {
            return Ok(self.text());
        }
        failed(format!("{what}: {}, and said {:?}", self.exit, String::from_utf8_lossy(&self.stderr)))
    }
}

impl Lab {
    pub(crate) fn new(
        subject: Arc<dyn Subject>,
        backend: Arc<dyn Backend>,
        abilities: Abilities,
        secrets: Secrets,
    ) -> Self {
        Self(Arc::new(Inner {
            subject,
            backend,
            abilities,
            install: InstallId::draw(random),
            other: InstallId::draw(random),
            claimed: Mutex::default(),
            seen: Mutex::default(),
            leaves_nothing: AtomicBool::new(false),
            secrets,
        }))
    }

    /// The installs under which this case makes boxes.
    pub(crate) fn installs(&self) -> [InstallId; 2] {
        [self.0.install.clone(), self.0.other.clone()]
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    pub(crate) fn shared_backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.0.backend)
    }

    /// Another handle on the same provider, as after a restart.
    pub(crate) fn fresh(&self) -> Verdict<Arc<dyn Backend>> {
        Ok(self.0.subject.backend()?)
    }

    pub(crate) fn abilities(&self) -> &Abilities {
        &self.0.abilities
    }

    /// This case's install.
    pub(crate) fn install(&self) -> &InstallId {
        &self.0.install
    }

    /// Another install on the same provider.
    pub(crate) fn other(&self) -> &InstallId {
        &self.0.other
    }

    pub(crate) fn switch(&self) -> Verdict<&dyn Switch> {
        self.backend().switch().ok_or_else(|| Stop::Skipped("it declares no stop and start".to_owned()))
    }

    pub(crate) fn resize(&self) -> Verdict<&dyn Resize> {
        self.backend().resize().ok_or_else(|| Stop::Skipped("it declares no resize".to_owned()))
    }

    pub(crate) fn relabel(&self) -> Verdict<&dyn Relabel> {
        self.backend().relabel().ok_or_else(|| Stop::Skipped("it declares no relabel".to_owned()))
    }

    /// Ends a guest as a fault of its host would.
    pub(crate) async fn crash(&self, guest: &Guest) -> Verdict {
        if self.0.subject.crash(guest).await? {
            return Ok(());
        }
        Err(Stop::Skipped("nothing here ends its guests as a fault of their host would".to_owned()))
    }

    /// Makes a second guest of the same box behind the backend's back. It is released when the case is over.
    pub(crate) async fn twin(&self, guest: &Guest) -> Verdict<Guest> {
        let made = self.0.subject.twin(guest).await?;
        let twin = made.ok_or_else(|| Stop::Skipped("a box cannot have a second guest here".to_owned()))?;
        self.keep(&twin);
        Ok(twin)
    }

    /// An order for a box that there has never been.
    pub(crate) fn order(&self) -> Verdict<Order> {
        self.order_of(self.install())
    }

    /// The same for another install.
    pub(crate) fn order_of(&self, install: &InstallId) -> Verdict<Order> {
        let box_id = BoxId::draw(random);
        // An ID is two letters and twelve random characters; a name must not have the form of an ID.
        let tail: String = box_id.as_str().chars().skip(2).collect();
        let owner = Owner {
            install: install.clone(),
            thread: Some(ThreadId::parse(format!("thread-{tail}"))?),
            name: BoxName::parse(format!("cf-{tail}"))?,
            kind: self.abilities().offer.kind.clone(),
            features: self.abilities().offer.capabilities.features.clone(),
            box_id,
        };
        Ok(Order {
            owner,
            size: self.abilities().size,
            host: None,
            earlier: Earlier::default(),
            cancel: CancellationToken::new(),
        })
    }

    /// Makes a box and waits until its commands answer.
    pub(crate) async fn make(&self) -> Verdict<Guest> {
        self.make_from(&self.order()?).await
    }

    /// The same from an order of the case's own.
    pub(crate) async fn make_from(&self, order: &Order) -> Verdict<Guest> {
        let mut order = order.clone();
        if order.host.is_none() {
            order.host = self.host(&order.owner.install).await?;
        }
        let guest = self.backend().acquire(&order, &self.hooks()).await?;
        self.keep(&guest);
        self.answers(&guest).await?;
        Ok(guest)
    }

    /// The first host with room, where the backend names hosts.
    pub(crate) async fn host(&self, install: &InstallId) -> Verdict<Option<String>> {
        let capacity = self.backend().capacity(&self.abilities().offer.kind, install).await?;
        let open = capacity.hosts.into_iter().find(|host| host.closed.is_none());
        Ok(open.and_then(|host| host.host))
    }

    /// Hooks that note what is claimed.
    pub(crate) fn hooks(&self) -> Hooks {
        Hooks { lab: self.clone(), told: Mutex::default(), refuse: false, cancel_at_claim: None }
    }

    /// Notes a guest that is released when the case is over.
    pub(crate) fn keep(&self, guest: &Guest) {
        let mut claimed = lock(&self.0.claimed);
        if !claimed.contains(guest) {
            claimed.push(guest.clone());
        }
    }

    /// Waits until the guest's commands answer.
    pub(crate) async fn answers(&self, guest: &Guest) -> Verdict {
        if self.abilities().offer.capabilities.command.is_none() {
            return Ok(());
        }
        let transport = self.transport(guest).await?;
        self.until("its commands answer", || async { transport.probe().await.err().map(|e| e.chain()) }).await
    }

    pub(crate) async fn transport(&self, guest: &Guest) -> Verdict<Arc<dyn Transport>> {
        Ok(self.backend().reach(guest).await?.command)
    }

    /// Starts `argv` in the guest.
    pub(crate) async fn spawn(&self, guest: &Guest, argv: &[&str]) -> Verdict<Process> {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        Ok(self.transport(guest).await?.spawn(&argv).await?)
    }

    /// Runs a script in the guest, with nothing on its stdin.
    pub(crate) async fn sh(&self, guest: &Guest, script: &str) -> Verdict<Said> {
        self.run(guest, &["sh", "-c", script], b"").await
    }

    /// Runs `argv` in the guest with `input` on its stdin, to its end.
    pub(crate) async fn run(&self, guest: &Guest, argv: &[&str], input: &[u8]) -> Verdict<Said> {
        let process = self.spawn(guest, argv).await?;
        let before = self.last_seen();
        self.see(format!("{before}; {argv:?} was started and has not ended"));
        let said = said(process, input).await;
        self.see(before);
        said
    }

    /// The guests of this case's install.
    pub(crate) async fn held(&self) -> Verdict<Vec<Held>> {
        Ok(self.backend().held(self.install()).await?)
    }

    /// The guests of one box.
    pub(crate) async fn held_of(&self, box_id: &BoxId) -> Verdict<Vec<Held>> {
        Ok(self.held().await?.into_iter().filter(|held| held.owner.box_id == *box_id).collect())
    }

    /// Waits until `trouble` sees none; what it saw last is told when the case is killed meanwhile.
    pub(crate) async fn until<F, T>(&self, what: &str, trouble: F) -> Verdict
    where
        F: Fn() -> T + Send,
        T: Future<Output = Option<String>> + Send,
    {
        while let Some(seen) = trouble().await {
            self.see(format!("waiting until {what}: {seen}"));
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        Ok(())
    }

    /// A word that must stand in no log and no file of bb-box's.
    pub(crate) fn secret(&self) -> String {
        let word = format!("secret-{:016x}{:016x}", random(), random());
        lock(&self.0.secrets).push(word.clone());
        word
    }

    /// Notes what was seen last, for when the case is killed.
    pub(crate) fn see(&self, words: impl Into<String>) {
        *lock(&self.0.seen) = words.into();
    }

    pub(crate) fn last_seen(&self) -> String {
        lock(&self.0.seen).clone()
    }

    /// The case gives back its boxes by itself: whatever its installs still hold at its end is a failure.
    pub(crate) fn leaves_nothing(&self) {
        self.0.leaves_nothing.store(true, Ordering::SeqCst);
    }

    /// Releases everything the case claimed.
    pub(crate) async fn clear(&self) -> Verdict {
        let claimed = std::mem::take(&mut *lock(&self.0.claimed));
        let mut boxes: BTreeMap<BoxId, Vec<Guest>> = BTreeMap::new();
        for guest in claimed {
            boxes.entry(guest.box_id.clone()).or_default().push(guest);
        }
        let released = boxes.into_values().map(|handles| async move {
            let mut troubles = Vec::new();
            for guest in handles {
                let released = self.backend().release(&guest, &Quiet).await;
                troubles.extend(released.err().map(|e| format!("{}: {}", guest.reference, e.chain())));
            }
            troubles
        });
        let mut troubles: Vec<_> = futures::future::join_all(released).await.into_iter().flatten().collect();
        if self.0.leaves_nothing.load(Ordering::SeqCst) {
            for install in self.installs() {
                for held in self.backend().held(&install).await? {
                    troubles
                        .push(format!("the case left {} of box {}", held.guest.reference, held.owner.name));
                    self.backend().release(&held.guest, &Quiet).await?;
                }
            }
        }
        if troubles.is_empty() {
            Ok(())
        } else {
            failed(format!("not cleared away: {}", troubles.join("; ")))
        }
    }
}

pub(crate) fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a process `input` and waits for its end and the end of its output.
pub(crate) async fn said(mut process: Process, input: &[u8]) -> Verdict<Said> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let feed = async {
        // A process that does not read its input breaks the pipe, and that is no fault.
        if process.stdin.write_all(input).await.is_ok() {
            drop(process.stdin.shutdown().await);
        }
    };
    let ((), out, err, exit) = tokio::join!(
        feed,
        process.stdout.read_to_end(&mut stdout),
        process.stderr.read_to_end(&mut stderr),
        process.exit
    );
    out?;
    err?;
    Ok(Said { exit: exit?, stdout, stderr })
}

/// What a backend told while it made a guest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    /// A claim, and whether the provider already listed a guest of the box then.
    Claim { guest: Box<Guest>, early: bool },
    /// A task's reference.
    Task(String),
    /// A step that was timed.
    Timing(String),
}

/// Hooks that write down what they are told.
pub(crate) struct Hooks {
    lab: Lab,
    told: Mutex<Vec<Word>>,
    /// Whether a claim is refused.
    pub(crate) refuse: bool,
    /// Is cancelled when the claim comes.
    pub(crate) cancel_at_claim: Option<CancellationToken>,
}

impl Hooks {
    /// What was told, in order.
    pub(crate) fn told(&self) -> Vec<Word> {
        lock(&self.told).clone()
    }

    /// The guest of the last claim.
    pub(crate) fn claimed(&self) -> Option<Guest> {
        self.told().into_iter().rev().find_map(|word| match word {
            Word::Claim { guest, .. } => Some(*guest),
            _ => None,
        })
    }
}

#[async_trait]
impl AcquireHooks for Hooks {
    async fn claim(&self, guest: &Guest) -> Result<()> {
        let held = self.lab.backend().held(&guest.install).await?;
        let early = held.iter().any(|held| held.owner.box_id == guest.box_id);
        lock(&self.told).push(Word::Claim { guest: Box::new(guest.clone()), early });
        self.lab.keep(guest);
        if let Some(cancel) = &self.cancel_at_claim {
            cancel.cancel();
        }
        if self.refuse {
            return Err(Error::unavailable("the claim could not be recorded"));
        }
        Ok(())
    }

    async fn task(&self, reference: &str) -> Result<()> {
        lock(&self.told).push(Word::Task(reference.to_owned()));
        Ok(())
    }

    fn timing(&self, step: &str, _took: Duration) {
        lock(&self.told).push(Word::Timing(step.to_owned()));
    }

    fn progress(&self, text: &str, _fraction: Option<f64>) {
        self.lab.see(format!("the backend said: {text}"));
    }
}

/// Release hooks that nobody listens to.
pub(crate) struct Quiet;

#[async_trait]
impl ReleaseHooks for Quiet {
    async fn resetting(&self) -> Result<()> {
        Ok(())
    }

    fn progress(&self, _text: &str, _fraction: Option<f64>) {}
}
