//! One resident runner in a box: requests go to it, its messages come back to who waits for them.
//!
//! A runner that is lost fails everyone who waits with [`Lost`]; whoever holds it asks another one what became of
//! the job. It never retries, and it never concludes from silence that a job ended.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    job::{Order, Signal, Stream},
    message::{Killed, Message, Output, Refusal, State, Status},
};
use crate::id::JobId;

/// Contact with the runner is lost; what was asked of it may have been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost;

/// What a runner says at last about a job.
#[derive(Debug)]
pub(super) enum Outcome {
    Ended { status: Status, output: Output },
    Refused(Refusal),
}

/// A request line longer than this goes as counted bytes instead: shells read lines a byte at a time.
const LONGEST_REQUEST: usize = 4000;
/// How many blocks of 4096 bytes one `get` may bring.
const MOST_BLOCKS: u64 = 16;
const BLOCK: u64 = 4096;

pub(super) struct Runner {
    pub(super) shared: Shared,
    /// Where the box keeps its jobs.
    pub(super) jobs_dir: String,
    requests: mpsc::Sender<Vec<u8>>,
    /// Whoever reads a file: its bytes come without a name, so one reads at a time.
    reading: tokio::sync::Mutex<()>,
    /// Whoever lists: `L end` has no name either.
    listing: tokio::sync::Mutex<()>,
    next: AtomicU64,
}

/// What the tasks that serve a runner share with it.
#[derive(Default)]
pub(super) struct Shared {
    waiting: Mutex<Waiting>,
    /// Ends the tasks.
    pub(super) stop: CancellationToken,
    /// Counts what came and what was taken: a runner whose count stands still while a ping is out is lost.
    pub(super) heard: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    lost: bool,
    /// Jobs that this runner launched and that have not ended.
    launched: BTreeSet<JobId>,
    watched: BTreeSet<JobId>,
    ends: BTreeMap<JobId, Vec<oneshot::Sender<Outcome>>>,
    states: BTreeMap<JobId, Vec<oneshot::Sender<State>>>,
    kills: BTreeMap<JobId, VecDeque<oneshot::Sender<Killed>>>,
    pings: BTreeMap<u64, oneshot::Sender<()>>,
    list: Option<Listing>,
    get: Option<Get>,
}

/// How many jobs a box may list: each is a directory there, and old ones are removed.
const MOST_JOBS: usize = 100_000;

struct Listing {
    jobs: Vec<(JobId, State)>,
    done: oneshot::Sender<Vec<(JobId, State)>>,
}

struct Get {
    bytes: Vec<u8>,
    most: usize,
    done: oneshot::Sender<(Vec<u8>, u64)>,
}

/// How busy a runner is, as its keeper sees it.
pub(super) struct Load {
    /// Someone waits for something.
    pub(super) waited_for: bool,
    /// A ping is out.
    pub(super) pinged: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it is held; if something did, the tables would still be whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the runner up: everyone who waits learns that it is lost.
    pub(super) fn give_up(&self) {
        let waiting = std::mem::replace(&mut *self.lock(), Waiting { lost: true, ..Waiting::default() });
        self.stop.cancel();
        drop(waiting);
    }

    /// Gives the runner up unless someone waits for something.
    pub(super) fn give_up_if_idle(&self) -> bool {
        let mut waiting = self.lock();
        if waiting.busy() {
            return false;
        }
        waiting.lost = true;
        self.stop.cancel();
        true
    }

    pub(super) fn load(&self) -> Load {
        let mut waiting = self.lock();
        waiting.drop_the_gone();
        Load { waited_for: waiting.busy(), pinged: !waiting.pings.is_empty() }
    }

    /// Has somebody wait for each kind of message: what a fuzz target plays them against.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn waits_for_all(&self, most: usize) -> All {
        let job = JobId::parse("jbabcdefghij01").unwrap_or_else(|_| unreachable!("it is a job's ID"));
        let mut waiting = self.lock();
        let (end, state, kill) = (oneshot::channel(), oneshot::channel(), oneshot::channel());
        let (ping, list, get) = (oneshot::channel(), oneshot::channel(), oneshot::channel());
        waiting.launched.insert(job.clone());
        waiting.ends.insert(job.clone(), vec![end.0]);
        waiting.states.insert(job.clone(), vec![state.0]);
        waiting.kills.insert(job, VecDeque::from([kill.0]));
        waiting.pings.insert(7, ping.0);
        waiting.list = Some(Listing { jobs: Vec::new(), done: list.0 });
        waiting.get = Some(Get { bytes: Vec::new(), most, done: get.0 });
        All { get: get.1, _others: Box::new((end.1, state.1, kill.1, ping.1, list.1)) }
    }

    /// Hands a message to who waits for it.
    pub(super) fn heard(&self, message: Message) {
        let mut waiting = self.lock();
        match message {
            Message::Ended { job, status, output, unrecorded } => {
                if unrecorded {
                    tracing::warn!(%job, "the box's disk is full: the job's status could not be recorded there");
                }
                waiting.launched.remove(&job);
                waiting.watched.remove(&job);
                for waiter in waiting.ends.remove(&job).into_iter().flatten() {
                    let _ = waiter.send(Outcome::Ended { status, output: output.clone() });
                }
            }
            Message::Refused { job, why } => {
                waiting.launched.remove(&job);
                for waiter in waiting.ends.remove(&job).into_iter().flatten() {
                    let _ = waiter.send(Outcome::Refused(why));
                }
            }
            Message::State { job, state } => waiting.state(job, state),
            Message::ListEnd => {
                if let Some(list) = waiting.list.take() {
                    let _ = list.done.send(list.jobs);
                }
            }
            Message::Killed { job, done } => {
                if let Some(waiter) = waiting.kills.get_mut(&job).and_then(VecDeque::pop_front) {
                    let _ = waiter.send(done);
                }
            }
            Message::Bytes(bytes) => {
                if let Some(get) = &mut waiting.get
                    && get.bytes.len() + bytes.len() <= get.most
                {
                    get.bytes.extend_from_slice(&bytes);
                }
            }
            Message::Got { size, .. } => {
                if let Some(get) = waiting.get.take() {
                    let _ = get.done.send((get.bytes, size));
                }
            }
            Message::Pong(ping) => {
                if let Some(waiter) = waiting.pings.remove(&ping) {
                    let _ = waiter.send(());
                }
            }
        }
    }
}

/// Everybody that [`Shared::waits_for_all`] has wait.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) struct All {
    get: oneshot::Receiver<(Vec<u8>, u64)>,
    _others: Box<dyn std::any::Any>,
}

#[cfg(any(test, feature = "fuzzing"))]
impl All {
    /// How many bytes of a file came, if the answer to `get` is complete.
    pub(super) fn brought(mut self) -> Option<usize> {
        self.get.try_recv().ok().map(|(bytes, _)| bytes.len())
    }
}

impl Waiting {
    fn busy(&self) -> bool {
        !(self.ends.is_empty()
            && self.states.is_empty()
            && self.kills.is_empty()
            && self.pings.is_empty()
            && self.list.is_none()
            && self.get.is_none())
    }

    fn state(&mut self, job: JobId, state: State) {
        if let Some(waiters) = self.states.remove(&job) {
            for waiter in waiters {
                let _ = waiter.send(state);
            }
        } else if let Some(list) = &mut self.list {
            list.jobs.push((job, state));
            if list.jobs.len() > MOST_JOBS {
                // Whoever waits for it hears that contact was lost: the box's word cannot be held.
                self.list = None;
            }
        }
    }

    /// Forgets who stopped waiting.
    fn drop_the_gone(&mut self) {
        self.ends.retain(|_, waiters| {
            waiters.retain(|w| !w.is_closed());
            !waiters.is_empty()
        });
        self.states.retain(|_, waiters| waiters.iter().any(|w| !w.is_closed()));
        self.kills.retain(|_, waiters| waiters.iter().any(|w| !w.is_closed()));
    }
}

impl Runner {
    pub(super) fn new(requests: mpsc::Sender<Vec<u8>>, jobs_dir: String) -> Self {
        Self {
            shared: Shared::default(),
            jobs_dir,
            requests,
            reading: tokio::sync::Mutex::default(),
            listing: tokio::sync::Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.shared.lock().lost
    }

    /// Sends one request whole, after `register` has noted who waits for its answer. A caller that is dropped
    /// meanwhile has either done both or neither.
    async fn send<T>(&self, request: Vec<u8>, register: impl FnOnce(&mut Waiting) -> T) -> Result<T, Lost> {
        let room = tokio::select! {
            biased;
            room = self.requests.reserve() => room.map_err(|_| Lost)?,
            () = self.shared.stop.cancelled() => return Err(Lost),
        };
        let mut waiting = self.shared.lock();
        if waiting.lost {
            return Err(Lost);
        }
        let registered = register(&mut waiting);
        room.send(request);
        Ok(registered)
    }

    /// Asks for a launch. The first answer comes on the second receiver when the job is launched and has neither
    /// ended nor been refused before that.
    pub(super) async fn run(
        &self,
        job: &JobId,
        order: &Order,
    ) -> Result<(oneshot::Receiver<Outcome>, oneshot::Receiver<()>), Lost> {
        let flags = if order.piped { "i" } else { "-" };
        let ping = self.next.fetch_add(1, Ordering::Relaxed);
        let mut request = Vec::with_capacity(order.spec.len() + order.body.len() + 96);
        if !order.body.is_empty() {
            request.extend_from_slice(format!("body {}\n", order.body.len()).as_bytes());
            request.extend_from_slice(&order.body);
        }
        if order.spec.len() > LONGEST_REQUEST {
            request.extend_from_slice(format!("spec {}\n", order.spec.len()).as_bytes());
            request.extend_from_slice(&order.spec);
            request.extend_from_slice(format!("run {job} {flags} -\n").as_bytes());
        } else {
            request.extend_from_slice(format!("run {job} {flags} ").as_bytes());
            request.extend_from_slice(&order.spec);
            request.push(b'\n');
        }
        request.extend_from_slice(format!("ping {ping}\n").as_bytes());
        let (end, ended) = oneshot::channel();
        let (pong, launched) = oneshot::channel();
        self.send(request, |waiting| {
            waiting.launched.insert(job.clone());
            waiting.ends.entry(job.clone()).or_default().push(end);
            waiting.pings.insert(ping, pong);
        })
        .await?;
        Ok((ended, launched))
    }

    /// The end of a job, whoever launched it.
    pub(super) async fn watch(&self, job: &JobId) -> Result<oneshot::Receiver<Outcome>, Lost> {
        let (end, ended) = oneshot::channel();
        {
            let mut waiting = self.shared.lock();
            if waiting.lost {
                return Err(Lost);
            }
            if waiting.launched.contains(job) || waiting.watched.contains(job) {
                waiting.ends.entry(job.clone()).or_default().push(end);
                return Ok(ended);
            }
        }
        self.send(format!("watch {job}\n").into_bytes(), |waiting| {
            waiting.watched.insert(job.clone());
            waiting.ends.entry(job.clone()).or_default().push(end);
        })
        .await?;
        Ok(ended)
    }

    /// How a job stands now.
    pub(super) async fn state(&self, job: &JobId) -> Result<State, Lost> {
        let (tell, told) = oneshot::channel();
        self.send(format!("st {job}\n").into_bytes(), |waiting| {
            waiting.states.entry(job.clone()).or_default().push(tell);
        })
        .await?;
        told.await.map_err(|_| Lost)
    }

    /// Every job in the box.
    pub(super) async fn list(&self) -> Result<Vec<(JobId, State)>, Lost> {
        let _turn = self.listing.lock().await;
        let (done, told) = oneshot::channel();
        self.send(b"list\n".to_vec(), |waiting| {
            waiting.list = Some(Listing { jobs: Vec::new(), done });
        })
        .await?;
        told.await.map_err(|_| Lost)
    }

    pub(super) async fn kill(&self, job: &JobId, signal: Signal) -> Result<Killed, Lost> {
        let (tell, told) = oneshot::channel();
        self.send(format!("kill {job} {}\n", signal.request()).into_bytes(), |waiting| {
            waiting.kills.entry(job.clone()).or_default().push_back(tell);
        })
        .await?;
        told.await.map_err(|_| Lost)
    }

    /// Up to `len` bytes at `offset`, and the stream's size. May be fewer than `len` and than there are.
    pub(super) async fn get(
        &self,
        job: &JobId,
        stream: Stream,
        offset: u64,
        len: usize,
    ) -> Result<(Vec<u8>, u64), Lost> {
        let (block, skip) = (offset / BLOCK, (offset % BLOCK) as usize);
        let blocks = ((skip + len) as u64).div_ceil(BLOCK).clamp(1, MOST_BLOCKS);
        let most = (blocks * BLOCK) as usize;
        let _turn = self.reading.lock().await;
        let (done, told) = oneshot::channel();
        self.send(format!("get {job} {} {block} {blocks}\n", stream.file()).into_bytes(), |waiting| {
            waiting.get = Some(Get { bytes: Vec::new(), most, done });
        })
        .await?;
        let (mut bytes, size) = told.await.map_err(|_| Lost)?;
        bytes.drain(..skip.min(bytes.len()));
        bytes.truncate(len);
        Ok((bytes, size))
    }

    pub(super) async fn ping(&self) -> Result<(), Lost> {
        let ping = self.next.fetch_add(1, Ordering::Relaxed);
        let (pong, answered) = oneshot::channel();
        self.send(format!("ping {ping}\n").into_bytes(), |waiting| {
            waiting.pings.insert(ping, pong);
        })
        .await?;
        answered.await.map_err(|_| Lost)
    }

    /// Sends a ping that nobody waits for: only its echo matters.
    pub(super) fn ping_unwaited(&self) {
        let ping = self.next.fetch_add(1, Ordering::Relaxed);
        let Ok(room) = self.requests.try_reserve() else { return };
        let mut waiting = self.shared.lock();
        if !waiting.lost {
            waiting.pings.insert(ping, oneshot::channel().0);
            room.send(format!("ping {ping}\n").into_bytes());
        }
    }

    /// Has job directories made or removed, in the background.
    pub(super) async fn keep_house(&self, make: &[JobId], remove: &[JobId], tidy: bool) -> Result<(), Lost> {
        let mut request = Vec::new();
        for (verb, ids) in [("rm", remove), ("pre", make)] {
            for some in ids.chunks(64) {
                let ids: Vec<&str> = some.iter().map(JobId::as_str).collect();
                request.extend_from_slice(format!("{verb} {}\n", ids.join(" ")).as_bytes());
            }
        }
        if tidy {
            request.extend_from_slice(b"tidy 7\n");
        }
        if request.is_empty() {
            return Ok(());
        }
        self.send(request, |_| ()).await
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}
