//! Commands in one box: start, run, wait, look, signal.
//!
//! Everything here survives the loss of a runner: another is started and asked what became of the job, and a job
//! is launched at most once, by its ID. "It ended" is only ever said by the box.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    fault::{lost, no_such, refused, silent, unknown},
    job::{Ended, JobSpec, JobState, KEPT, Kept, Order, RunResult, Signal, Signalled, Stream},
    message::{Killed, Output, Refusal, State, Status},
    runner::{Lost, Outcome, Runner},
    runners::{Dial, Slot, dial_sh},
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Result},
    id::JobId,
    transport::Transport,
};

/// How long a run is waited for by default, 270 s: callers of tools are often cut off at five minutes.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(270);

/// How often contact is made anew before a request is given up.
const TRIES: u32 = 3;
/// Between them.
const PAUSE: Duration = Duration::from_millis(500);

/// Commands and files in one box. Cheap to clone.
///
/// - *Promise* `a-runs-end-is-true`: its code or signal, told when its shell has ended, never a guess.
///   `a-runs-bytes-are-bytes`: words, scripts, input and output pass unharmed, each stream in its order.
///   `a-job-outlives-its-caller`: and is found again by its ID.
///   `a-secret-stays-secret`: a variable's value is in no argument, file, log or error.
///   `a-copy-arrives-whole-or-not-at-all`: a copy that is cut off leaves the old files.
#[derive(Clone)]
pub struct Session {
    pub(super) env: Arc<dyn Env>,
    pub(super) slot: Arc<Slot>,
    dial: Arc<dyn Dial>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

/// A job that was launched: its ID, and how to hear of its end.
pub(super) struct Launched {
    pub(super) job: JobId,
    runner: Arc<Runner>,
    end: End,
    /// Whether a lost runner was asked for it too, and may yet launch it: then the box must keep its claim on the ID.
    pub(super) again: bool,
}

enum End {
    Here(Outcome),
    Coming(tokio::sync::oneshot::Receiver<Outcome>),
}

impl Session {
    pub(super) fn new(env: Arc<dyn Env>, slot: Arc<Slot>, dial: Arc<dyn Dial>) -> Self {
        Self { env, slot, dial }
    }

    /// What every call passes through: it ends when the box is handed to somebody else meanwhile, and whoever keeps
    /// the box's record hears whether the box answers.
    pub(super) async fn contact<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        let mut closes = self.slot.closes();
        let handed_on = async {
            loop {
                // The slot lives as long as this session.
                let _ = closes.changed().await;
                if let Err(error) = self.dial.allowed() {
                    return error;
                }
            }
        };
        let result = tokio::select! {
            biased;
            error = handed_on => Err(error),
            result = call => result,
        };
        self.dial.came_out(result.as_ref().err()).await;
        result
    }

    /// Makes contact: the box's shell answers. The first command after it costs no more than the tenth.
    ///
    /// # Errors
    /// As [`Transport::spawn`]; `Unavailable` with the stage that failed when the shell does not answer.
    pub async fn ready(&self) -> Result<()> {
        self.contact(async { self.runner().await.map(drop) }).await
    }

    /// Launches a job and returns when it runs.
    ///
    /// # Errors
    /// `Invalid` for a spec that cannot be run; `Failed` when the box cannot launch it, with effect `None`;
    /// `Unavailable`, with effect `Unknown` once it was asked for: ask for the job by its ID, which the context
    /// names.
    pub async fn start(&self, spec: &JobSpec) -> Result<JobId> {
        self.contact(async {
            let launched = self.launch(spec).await?;
            self.slot.keep_house(&*self.env, &launched.runner, &launched.job).await;
            Ok(launched.job)
        })
        .await
    }

    /// Runs a job and waits for its end, up to `wait` after its launch; then hands it back running.
    ///
    /// # Errors
    /// As [`Self::start`], and `Failed` when the job is lost in the box.
    pub async fn run(&self, spec: &JobSpec, wait: Duration) -> Result<RunResult> {
        self.contact(async {
            let launched = self.launch(spec).await?;
            let again = launched.again;
            let result = self.finish(launched, wait).await?;
            if let RunResult::Ended(ended) = &result {
                // A result that leaves something out is not all of it: that job stays until it is removed or 7 days old.
                // So does a job whose ID the caller chose: said again, it must be found.
                if spec.id.is_none() && !again && ended.stdout.omitted() == 0 && ended.stderr.omitted() == 0 {
                    self.slot.fetched(&ended.job);
                }
            }
            Ok(result)
        })
        .await
    }

    /// Waits for a job's end, up to `wait`.
    ///
    /// # Errors
    /// `Gone` when the box has no such job, `Failed` when it is lost there, `Unavailable`.
    pub async fn wait(&self, job: &JobId, wait: Duration) -> Result<RunResult> {
        self.contact(async {
            let (runner, state) = self.ask_state(job).await?;
            if state == State::None {
                return Err(no_such(job));
            }
            let end = match runner.watch(job).await {
                Ok(end) => End::Coming(end),
                Err(Lost) => End::Coming(tokio::sync::oneshot::channel().1),
            };
            self.finish(Launched { job: job.clone(), runner, end, again: false }, wait).await
        })
        .await
    }

    /// How a job stands.
    ///
    /// # Errors
    /// `Gone` when the box has no such job, `Unavailable`.
    pub async fn job(&self, job: &JobId) -> Result<JobState> {
        self.contact(async {
            let mut tries = 0;
            loop {
                match seen(self.ask_state(job).await?.1) {
                    None => return Err(no_such(job)),
                    // Between a claim and a process lie milliseconds.
                    Some(JobState::Starting) if tries < 10 => {
                        tries += 1;
                        self.env.sleep(Duration::from_millis(200)).await;
                    }
                    Some(state) => return Ok(state),
                }
            }
        })
        .await
    }

    /// Every job that the box keeps.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn jobs(&self) -> Result<Vec<(JobId, JobState)>> {
        self.contact(async {
            let jobs = self.ask(|runner| async move { runner.list().await }).await?;
            Ok(jobs.into_iter().filter_map(|(job, state)| Some((job, seen(state)?))).collect())
        })
        .await
    }

    /// Sends a signal. Terminate and kill reach whatever the job started, also what left its group or outlived its
    /// main process; interrupt, hang-up and quit its group; the others its main process.
    ///
    /// # Errors
    /// `Gone` when the box has no such job, `Unavailable`.
    pub async fn signal(&self, job: &JobId, signal: Signal) -> Result<Signalled> {
        if self.job(job).await? == JobState::Starting {
            return Err(Error::unavailable("the job has no process yet")
                .fix("try again in a moment")
                .at("job", job));
        }
        let kill = self.ask(|runner| async move { runner.kill(job, signal).await });
        let done = self.contact(kill).await?;
        Ok(match done {
            Killed::Sent => Signalled::Sent,
            Killed::NotAllowed => Signalled::NotAllowed,
            Killed::Gone => Signalled::Ended,
        })
    }

    /// Removes a job that ended, with its output. One that is gone already counts as removed.
    ///
    /// # Errors
    /// `Busy` while it runs, `Unavailable`.
    pub async fn remove(&self, job: &JobId) -> Result<()> {
        self.contact(async {
            self.begin_remove(job).await?;
            self.ask(|runner| async move {
                while runner.state(job).await? != State::None {
                    self.env.sleep(Duration::from_millis(20)).await;
                }
                Ok(())
            })
            .await
        })
        .await
    }

    /// As [`Self::remove`], but does not wait until all of it is gone: for callers that have what they wanted.
    ///
    /// # Errors
    /// As [`Self::remove`].
    pub async fn discard(&self, job: &JobId) -> Result<()> {
        self.contact(self.begin_remove(job)).await
    }

    /// Has an ended job removed; returns once the box has heard it.
    async fn begin_remove(&self, job: &JobId) -> Result<()> {
        match self.ask_state(job).await?.1 {
            State::Run | State::New => {
                return Err(Error::new(ErrorKind::Busy, "the job still runs")
                    .fix("end it first")
                    .at("job", job));
            }
            State::Done(_) | State::Lost => {}
            State::None => return Ok(()),
        }
        let one = [job.clone()];
        let one = &one;
        self.ask(|runner| async move {
            runner.keep_house(&[], one, false).await?;
            // Requests are taken in their order: when this is answered, that one is under way.
            runner.ping().await
        })
        .await
    }

    /// Up to `len` bytes of a job's output from `offset`, and how many there are in all by now. Fewer come at the
    /// end. Meant for pieces; [`Self::follow`] streams.
    ///
    /// # Errors
    /// `Gone` when the box has no such job, `Unavailable`.
    pub async fn read(&self, job: &JobId, stream: Stream, offset: u64, len: usize) -> Result<(Vec<u8>, u64)> {
        self.contact(async {
            if self.ask_state(job).await?.1 == State::None {
                return Err(no_such(job));
            }
            self.read_known(job, stream, offset, len).await
        })
        .await
    }

    pub(super) async fn read_known(
        &self,
        job: &JobId,
        stream: Stream,
        offset: u64,
        len: usize,
    ) -> Result<(Vec<u8>, u64)> {
        let mut bytes = Vec::new();
        loop {
            let (at, left) = (offset + bytes.len() as u64, len - bytes.len());
            let (more, size) =
                self.ask(|runner| async move { runner.get(job, stream, at, left).await }).await?;
            bytes.extend_from_slice(&more);
            if more.is_empty() || bytes.len() >= len {
                return Ok((bytes, size));
            }
        }
    }

    pub(super) async fn launch(&self, spec: &JobSpec) -> Result<Launched> {
        let order = Order::new(spec)?;
        let job = spec.id.clone().unwrap_or_else(|| self.slot.job_id(&*self.env));
        let mut asked = false;
        for _ in 0..TRIES {
            let runner = match self.runner().await {
                Ok(runner) => runner,
                Err(error) if asked => return Err(unknown(&job, Some(error))),
                Err(error) => return Err(error),
            };
            if asked {
                // The lost runner may have launched it, and may yet: the box's claim on the ID decides.
                match runner.state(&job).await {
                    Ok(State::None) => {}
                    Ok(_) => return Ok(self.found(job, runner).await),
                    Err(Lost) => continue,
                }
            }
            let again = std::mem::replace(&mut asked, true);
            let Ok((mut end, mut pong)) = runner.run(&job, &order).await else { continue };
            let first = tokio::select! {
                biased;
                end = &mut end => Some(end),
                launched = &mut pong => match launched {
                    Ok(()) => None,
                    Err(_) => continue,
                },
            };
            return match first {
                None => Ok(Launched { job, runner, end: End::Coming(end), again }),
                Some(Ok(Outcome::Refused(Refusal::Exists))) => Ok(self.found(job, runner).await),
                Some(Ok(Outcome::Refused(why))) => Err(refused(&job, why)),
                Some(Ok(outcome)) => Ok(Launched { job, runner, end: End::Here(outcome), again }),
                Some(Err(_)) => continue,
            };
        }
        Err(unknown(&job, None))
    }

    async fn found(&self, job: JobId, runner: Arc<Runner>) -> Launched {
        let end = runner.watch(&job).await.unwrap_or_else(|Lost| tokio::sync::oneshot::channel().1);
        Launched { job, runner, end: End::Coming(end), again: true }
    }

    async fn finish(&self, launched: Launched, wait: Duration) -> Result<RunResult> {
        let job = launched.job.clone();
        let ended = tokio::select! {
            biased;
            ended = self.outcome(launched) => ended?,
            () = self.env.sleep(wait) => return Ok(RunResult::Running(job)),
        };
        self.result(job, ended.0, ended.1).await.map(RunResult::Ended)
    }

    /// The end of a job, heard from whichever runner lives.
    pub(super) async fn outcome(&self, launched: Launched) -> Result<(Status, Output)> {
        let Launched { job, mut runner, end, .. } = launched;
        let mut end = match end {
            End::Here(outcome) => return self.settled(&job, &runner, outcome).await,
            End::Coming(end) => end,
        };
        let mut tries = 0;
        loop {
            match end.await {
                // Two asked for it at once: the other launched it, and its end is this one's too.
                Ok(Outcome::Refused(Refusal::Exists)) => {}
                Ok(outcome) => return self.settled(&job, &runner, outcome).await,
                #[cfg(feature = "simulation")]
                Err(_) if crate::simulation::is(crate::simulation::Bug::GuessedExit) => {
                    let output = Output::Inline { out: Vec::new(), err: Vec::new() };
                    return Ok((Status::Exit(crate::transport::Exit::Code(0)), output));
                }
                Err(_) => {}
            }
            if tries == TRIES {
                return Err(unknown(&job, None));
            }
            if tries > 0 {
                self.env.sleep(PAUSE * tries).await;
            }
            tries += 1;
            // A receiver without a sender: the next round asks again.
            end = tokio::sync::oneshot::channel().1;
            match self.runner().await {
                Ok(new) => runner = new,
                Err(error) if tries == TRIES || error.kind() != ErrorKind::Unavailable => {
                    return Err(unknown(&job, Some(error)));
                }
                Err(_) => continue,
            }
            match runner.state(&job).await {
                Ok(State::None) => return Err(no_such(&job)),
                Ok(_) => {}
                Err(Lost) => continue,
            }
            if let Ok(coming) = runner.watch(&job).await {
                end = coming;
                tries = 0;
            }
        }
    }

    async fn settled(&self, job: &JobId, runner: &Runner, outcome: Outcome) -> Result<(Status, Output)> {
        self.slot.keep_house(&*self.env, runner, job).await;
        match outcome {
            Outcome::Ended { status, output } => Ok((status, output)),
            Outcome::Refused(why) => Err(refused(job, why)),
        }
    }

    async fn result(&self, job: JobId, status: Status, output: Output) -> Result<Ended> {
        let (stdout, stderr) = match output {
            Output::Inline { out, err } => (Kept::of_whole(out), Kept::of_whole(err)),
            Output::Sizes { out, err } => {
                (self.kept(&job, Stream::Stdout, out).await?, self.kept(&job, Stream::Stderr, err).await?)
            }
        };
        let Status::Exit(exit) = status else { return Err(lost(&job)) };
        Ok(Ended { job, exit, stdout, stderr })
    }

    async fn kept(&self, job: &JobId, stream: Stream, total: u64) -> Result<Kept> {
        if total <= 2 * KEPT as u64 {
            return Ok(Kept::of_whole(self.read_known(job, stream, 0, 2 * KEPT).await?.0));
        }
        let (head, _) = self.read_known(job, stream, 0, KEPT).await?;
        let (tail, _) = self.read_known(job, stream, total - KEPT as u64, KEPT).await?;
        Ok(Kept { head, tail, total })
    }

    pub(super) async fn ask_state(&self, job: &JobId) -> Result<(Arc<Runner>, State)> {
        for _ in 0..TRIES {
            let runner = self.runner().await?;
            if let Ok(state) = runner.state(job).await {
                return Ok((runner, state));
            }
        }
        Err(silent())
    }

    /// Asks something that may be asked again.
    pub(super) async fn ask<T, F>(&self, what: impl Fn(Arc<Runner>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Lost>>,
    {
        for _ in 0..TRIES {
            let runner = self.runner().await?;
            if let Ok(answer) = what(runner).await {
                return Ok(answer);
            }
        }
        Err(silent())
    }

    pub(super) async fn runner(&self) -> Result<Arc<Runner>> {
        let runner = self.slot.runner(&self.env, &*self.dial).await?;
        // After it was found: another session may have started it. A box that is handed on from now on closes it.
        self.dial.allowed()?;
        Ok(runner)
    }

    /// The transport, for what needs streams of its own.
    pub(super) async fn transport(&self) -> Result<Arc<dyn Transport>> {
        dial_sh(&*self.dial).await
    }
}

fn seen(state: State) -> Option<JobState> {
    match state {
        State::Done(Status::Exit(exit)) => Some(JobState::Ended(exit)),
        State::Done(Status::Lost) | State::Lost => Some(JobState::Lost),
        State::Run => Some(JobState::Running),
        State::New => Some(JobState::Starting),
        State::None => None,
    }
}
