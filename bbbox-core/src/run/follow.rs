//! Output as it is written, and input while it is read: streams of their own beside the runner.
//!
//! Bytes pass through a small buffer and are neither kept nor changed. A stream that breaks is opened again where
//! it was; the end is only what the box says is the end.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{
    fault::{lost, no_such},
    job::{JobSpec, Stream},
    message::{Output, State, Status},
    posix,
    session::Session,
};
use crate::{
    error::{Error, Result},
    id::JobId,
    transport::{Exit, Process},
};

const SCRIPT: &str = include_str!("../../guest/follow.sh");
/// How long a command may take until its output gets a stream of its own: a short one's comes with its end.
const SHORT: Duration = Duration::from_millis(60);
/// Output up to this size is fetched through the runner.
const SMALL: u64 = 64 * 1024;
/// How often a stream in which nothing comes is doubted.
pub(super) const DOUBT: Duration = Duration::from_secs(15);
const TRIES: u32 = 4;
const BUFFER: usize = 64 * 1024;

impl Session {
    /// Writes a job's output to `to` from `offset` on, as it is written, until the job has ended. Gives the offset
    /// it came to.
    ///
    /// # Errors
    /// `Gone` when the box has no such job, `Failed` when it is lost there or `to` cannot be written,
    /// `Unavailable`.
    pub async fn follow(
        &self,
        job: &JobId,
        stream: Stream,
        offset: u64,
        to: &mut (impl AsyncWrite + Send + Unpin),
    ) -> Result<u64> {
        self.contact(async {
            if self.ask_state(job).await?.1 == State::None {
                return Err(no_such(job));
            }
            let mut at = match stream {
                Stream::Stdout => [Some(offset), None],
                Stream::Stderr => [None, Some(offset)],
            };
            let mut other = tokio::io::sink();
            match stream {
                Stream::Stdout => self.pipe(job, &mut at, to, &mut other).await?,
                Stream::Stderr => self.pipe(job, &mut at, &mut other, to).await?,
            }
            Ok(at[0].or(at[1]).unwrap_or(offset))
        })
        .await
    }

    /// Runs a job with its streams passed through as they come, however much there is, and gives how it ended.
    /// Ends with the job; what it left running is not waited for. Dropped, it leaves the job running: a caller
    /// that may need to signal it chooses its ID.
    ///
    /// # Errors
    /// As [`Self::run`] and [`Self::follow`].
    pub async fn stream(
        &self,
        spec: &JobSpec,
        stdin: Option<&mut (dyn AsyncRead + Send + Unpin)>,
        stdout: &mut (dyn AsyncWrite + Send + Unpin),
        stderr: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<Exit> {
        self.contact(async {
            let mut spec = spec.clone();
            spec.piped = stdin.is_some();
            let launched = self.launch(&spec).await?;
            let (job, again) = (launched.job.clone(), launched.again);
            let mut outcome = std::pin::pin!(self.outcome(launched));
            let early = if stdin.is_some() {
                None
            } else {
                tokio::select! {
                    biased;
                    outcome = &mut outcome => Some(outcome?),
                    () = self.env.sleep(SHORT) => None,
                }
            };
            let status = match early {
                Some((status, output)) => {
                    self.pour(&job, output, stdout, stderr).await?;
                    status
                }
                None => {
                    let mut at = [Some(0), Some(0)];
                    let work = async {
                        tokio::try_join!(outcome, self.pipe(&job, &mut at, stdout, stderr))
                            .map(|(ended, ())| ended.0)
                    };
                    let input = async {
                        if let Some(stdin) = stdin
                            && let Err(error) = self.feed(&job, stdin).await
                        {
                            return error;
                        }
                        std::future::pending().await
                    };
                    tokio::select! {
                        biased;
                        status = work => status?,
                        error = input => return Err(error),
                    }
                }
            };
            let Status::Exit(exit) = status else { return Err(lost(&job)) };
            // One whose ID the caller chose stays: said again, it must be found.
            if spec.id.is_none() && !again {
                self.slot.fetched(&job);
            }
            Ok(exit)
        })
        .await
    }

    /// Fills the stdin of a job that was started piped, and closes it at the end of `from`. Gives how much went.
    /// A job that ends, or closes its stdin, stops it early.
    ///
    /// # Errors
    /// `Unavailable` when contact is lost: the job then reads the end of its input, `Failed` when `from` cannot be
    /// read.
    pub async fn feed(
        &self,
        job: &JobId,
        from: &mut (impl AsyncRead + Send + Unpin + ?Sized),
    ) -> Result<u64> {
        self.contact(async {
            let script = r#"[ -p "$1/in" ] || exit 3; exec cat >"$1/in""#;
            let dir = self.job_dir(job).await?;
            let argv = ["/bin/sh", "-c", script, "sh", &dir].map(str::to_owned);
            let Process { mut stdin, exit, kill, stdout, stderr } =
                self.transport().await?.spawn(&argv).await?;
            let sent = AtomicU64::new(0);
            let mut buffer = vec![0; BUFFER];
            let count = &sent;
            let all = async move {
                loop {
                    let n = from.read(&mut buffer).await.map_err(|error| {
                        Error::failed("the input for the job could not be read").at("job", job).because(error)
                    })?;
                    if n == 0 || stdin.write_all(&buffer[..n]).await.is_err() {
                        break;
                    }
                    count.fetch_add(n as u64, Ordering::Relaxed);
                    if stdin.flush().await.is_err() {
                        break;
                    }
                }
                let _ = stdin.shutdown().await;
                drop(stdin);
                std::future::pending::<Result<()>>().await
            };
            // Whoever waits at the other end of the pipe decides when it is over, not what is left to send.
            let done = tokio::select! {
                biased;
                exit = exit => exit.map(drop),
                failed = all => failed,
            };
            drop((stdout, stderr));
            if done.is_err() {
                let _ = kill.await;
            }
            done.map(|()| sent.into_inner())
        })
        .await
    }

    async fn job_dir(&self, job: &JobId) -> Result<String> {
        Ok(format!("{}/{job}", self.runner().await?.jobs_dir))
    }

    /// Writes what a short job left.
    async fn pour(
        &self,
        job: &JobId,
        output: Output,
        stdout: &mut (dyn AsyncWrite + Send + Unpin),
        stderr: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<()> {
        let (out, err) = match output {
            Output::Inline { out, err } => (out, err),
            Output::Sizes { out, err } if out <= SMALL && err <= SMALL => (
                self.read_known(job, Stream::Stdout, 0, out as usize).await?.0,
                self.read_known(job, Stream::Stderr, 0, err as usize).await?.0,
            ),
            Output::Sizes { .. } => return self.pipe(job, &mut [Some(0), Some(0)], stdout, stderr).await,
        };
        put(job, &out, stdout).await?;
        put(job, &err, stderr).await
    }

    /// Streams from the offsets `at`, which move along, to the job's end.
    async fn pipe(
        &self,
        job: &JobId,
        at: &mut [Option<u64>; 2],
        out: &mut (impl AsyncWrite + Send + Unpin + ?Sized),
        err: &mut (impl AsyncWrite + Send + Unpin + ?Sized),
    ) -> Result<()> {
        let mut tries = 0;
        loop {
            let before = *at;
            let outcome = self.pipe_once(job, at, out, err).await;
            match outcome {
                Ok(Some(Exit::Code(0))) => return Ok(()),
                Ok(Some(Exit::Code(3))) => return Err(no_such(job)),
                Ok(Some(Exit::Code(4))) => return Err(lost(job)),
                Err(error) if error.kind() != crate::ErrorKind::Unavailable => return Err(error),
                Ok(_) | Err(_) if *at != before => tries = 0,
                Err(error) if tries >= TRIES => return Err(error),
                Ok(_) if tries >= TRIES => {
                    return Err(Error::unavailable("the stream of the job's output breaks each time")
                        .fix("read its output by offset")
                        .at("job", job));
                }
                Ok(_) | Err(_) => {}
            }
            self.env.sleep(Duration::from_millis(200) * tries).await;
            tries += 1;
        }
    }

    /// One stream until it ends or breaks; `None` when contact was lost.
    async fn pipe_once(
        &self,
        job: &JobId,
        at: &mut [Option<u64>; 2],
        out: &mut (impl AsyncWrite + Send + Unpin + ?Sized),
        err: &mut (impl AsyncWrite + Send + Unpin + ?Sized),
    ) -> Result<Option<Exit>> {
        let runner = self.runner().await?;
        let dir = format!("{}/{job}", runner.jobs_dir);
        let [from_out, from_err] = at.map(|at| at.map_or_else(|| "-".to_owned(), |at| at.to_string()));
        let script = posix::sent(SCRIPT);
        let argv = ["/bin/sh", "-c", &script, "sh", &dir, &from_out, &from_err].map(str::to_owned);
        let process = self.transport().await?.spawn(&argv).await?;
        let Process { stdin, mut stdout, mut stderr, exit, kill } = process;
        let [at_out, at_err] = at;
        let streams = async {
            tokio::try_join!(pass(job, &mut stdout, out, at_out), pass(job, &mut stderr, err, at_err))?;
            exit.await.map(Some)
        };
        let contact = async {
            loop {
                self.env.sleep(DOUBT).await;
                if runner.ping().await.is_err() {
                    return;
                }
            }
        };
        let ended = tokio::select! {
            biased;
            ended = streams => ended,
            () = contact => Ok(None),
        };
        // What is left unread must not hold up the end of the process that writes it.
        drop((stdin, stdout, stderr));
        if !matches!(ended, Ok(Some(_))) {
            let _ = kill.await;
        }
        ended
    }
}

/// Passes bytes on until their end. A stream that breaks ends like one that is over: the exit tells which.
async fn pass(
    job: &JobId,
    from: &mut (impl AsyncRead + Unpin + ?Sized),
    to: &mut (impl AsyncWrite + Unpin + ?Sized),
    at: &mut Option<u64>,
) -> Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let n = from.read(&mut buffer).await.unwrap_or(0);
        if n == 0 {
            return Ok(());
        }
        // A stream that nobody asked for has only what a shell may have to say.
        let Some(at) = at else { continue };
        put(job, &buffer[..n], to).await?;
        *at += n as u64;
    }
}

async fn put(job: &JobId, bytes: &[u8], to: &mut (impl AsyncWrite + Unpin + ?Sized)) -> Result<()> {
    let put = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    put.await.map_err(|error: std::io::Error| {
        Error::failed("the job's output could not be passed on")
            .fix("the job goes on in the box: read its output by its ID")
            .at("job", job)
            .because(error)
    })
}
