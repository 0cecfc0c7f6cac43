//! One process in a container: its three streams, how it ended, and how to end it.
//!
//! The API's exec has no kill, may lose contact at any time, and sends both output streams mixed in frames. Here the
//! frames are taken apart with bounded memory, the end of stdin is passed on, and the exit status is asked for until
//! it is known: the end of the output alone says nothing about the process.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bbbox_core::{
    Effect, Error, Result,
    error::ErrorKind,
    transport::{Exit, Process, Source},
};
use bollard::{
    container::LogOutput,
    errors::Error as Native,
    exec::{StartExecOptions, StartExecResults},
    models::ExecConfig,
};
use bytes::Bytes;
use futures::{Stream, StreamExt, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::{mpsc, watch},
};
use tokio_util::io::StreamReader;

use crate::{
    client::Engine,
    fault::{self, Call, fault},
};

/// Set for every process started here, so that its leader can be found again inside the container.
const MARK: &str = "BB_BOX_EXEC";

/// Becomes the command. A command that is not there is then told by a shell, on stderr and with 127, and not by the
/// engine, which puts its words among the command's own output.
const BECOME: [&str; 4] = ["/bin/sh", "-c", r#"exec "$@""#, "sh"];

/// Frames that wait for a reader, each up to 32 KiB: a reader that stops stops the process, as a pipe would.
const WAITING: usize = 32;
/// Bytes of stdin on their way.
const STDIN: usize = 256 * 1024;

/// The first and the longest pause between two questions for the exit status. The engine itself ends a stream that
/// something still holds two seconds after the process, so asking more often later would tell nothing sooner.
const FIRST_PAUSE: Duration = Duration::from_millis(40);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Finds and ends the session of the process whose environment holds the mark `$1`: the one that the engine put
/// there, so that its parent is outside. `$2` is its ID where that is known already. Prints the ID, or nothing when
/// there is no such process that the caller may look at.
const KILL: &str = r#"
mark=$1 leader=$2
session() { { read -r stat <"$1/stat"; } 2>/dev/null && set -- ${stat##*) } && parent=$2 session=$4; }
if [ -z "$leader" ]; then
    for process in /proc/[0-9]*; do
        if session "$process" && [ "$parent" = 0 ] &&
            { tr '\0' '\n' <"$process/environ" | grep -qxF "$mark"; } 2>/dev/null; then
            leader=${process#/proc/}
        fi
    done
fi
[ -n "$leader" ] || exit 0
echo "$leader"
kill -KILL -- "-$leader" 2>/dev/null
for process in /proc/[0-9]*; do
    if session "$process" && [ "$session" = "$leader" ]; then kill -KILL "${process#/proc/}" 2>/dev/null; fi
done
exit 0
"#;

/// How often a process to end is looked for before it counts as hidden.
const LOOKS: u32 = 8;

/// Who runs a process, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    /// The box's user, at home.
    User,
    /// The administrator, for this crate's own small steps.
    Root,
}

/// Starts `argv` in the container with this ID.
pub(crate) async fn spawn(
    engine: &Arc<Engine>,
    container: &str,
    argv: &[String],
    who: As,
) -> Result<Process> {
    let api = engine.api().await?;
    let mark = format!("{MARK}={}", random_word());
    let mut config = ExecConfig {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(false),
        cmd: Some(BECOME.iter().map(|word| (*word).to_owned()).chain(argv.iter().cloned()).collect()),
        env: Some(vec![mark.clone()]),
        user: Some("root".to_owned()),
        ..ExecConfig::default()
    };
    if who == As::User {
        config.user = Some("box".to_owned());
        config.working_dir = Some("/home/box".to_owned());
        let env = ["HOME=/home/box", "USER=box", "LOGNAME=box"].map(str::to_owned);
        config.env = Some(env.into_iter().chain([mark.clone()]).collect());
    }
    let id = api.create_exec(container, config).await.map_err(|e| refused(container, Call::Reads, e))?.id;
    let options = StartExecOptions { detach: false, tty: false, output_capacity: Some(128 * 1024) };
    let started =
        api.start_exec(&id, Some(options)).await.map_err(|e| refused(container, Call::Changes, e))?;
    let StartExecResults::Attached { output, input } = started else {
        return Err(Error::failed("the engine started a process without its streams"));
    };

    let (near, far) = tokio::io::duplex(STDIN);
    tokio::spawn(carry_stdin(far, input));
    let (out, stdout) = mpsc::channel(WAITING);
    let (err, stderr) = mpsc::channel(WAITING);
    let (ended, output_ended) = watch::channel(false);
    tokio::spawn(take_apart(output, out, err, ended));

    let exit = Box::pin(wait_for_exit(Arc::clone(engine), id.clone(), output_ended));
    let kill = killing(Arc::clone(engine), container.to_owned(), id, mark);
    Ok(Process { stdin: Box::new(near), stdout: source(stdout), stderr: source(stderr), exit, kill })
}

/// Runs `argv` to its end without input and returns its status and the start of its output.
pub(crate) async fn run(
    engine: &Arc<Engine>,
    container: &str,
    argv: &[String],
    who: As,
) -> Result<(Exit, String)> {
    let process = spawn(engine, container, argv, who).await?;
    drop(process.stdin);
    let (out, err) = tokio::join!(read_start(process.stdout), read_start(process.stderr));
    Ok((process.exit.await?, format!("{out}{err}")))
}

async fn read_start(mut from: Source) -> String {
    use tokio::io::AsyncReadExt;
    let (mut kept, mut buffer) = (Vec::new(), vec![0; 8192]);
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        kept.extend_from_slice(&buffer[..n.min(65536_usize.saturating_sub(kept.len()))]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// A word that nothing else has.
pub(crate) fn random_word() -> String {
    use std::hash::{BuildHasher, RandomState};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:016x}", RandomState::new().hash_one((number, std::process::id())))
}

/// What the engine's refusal to start a process means.
fn refused(container: &str, call: Call, error: Native) -> Error {
    let stopped = fault::says(&error, 409, "is not running");
    let paused = fault::says(&error, 409, "is paused");
    let made = fault(format!("could not start a process in container {container}"), call, error);
    if stopped {
        return Error::new(ErrorKind::Refused, "the box is stopped").fix("start the box first").because(made);
    }
    if paused {
        return Error::new(ErrorKind::Refused, "the box is paused")
            .fix(format!("run docker unpause {container}"))
            .because(made);
    }
    made
}

type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// Passes stdin on, and its end: dropping the writer says nothing to the engine, only a shutdown does.
async fn carry_stdin(mut from: tokio::io::DuplexStream, mut to: Input) {
    if tokio::io::copy_buf(&mut tokio::io::BufReader::with_capacity(STDIN, &mut from), &mut to).await.is_ok()
    {
        // Fails only when the process has ended, and then nobody is there to be told.
        let _ = to.shutdown().await;
        // The connection closes once both directions are dropped.
        let _ = to.flush().await;
    }
}

type Frames = Pin<Box<dyn Stream<Item = Result<LogOutput, Native>> + Send>>;
type Pipe = mpsc::Sender<io::Result<Bytes>>;

/// Takes the mixed output apart, each stream in its own order.
async fn take_apart(mut frames: Frames, out: Pipe, err: Pipe, ended: watch::Sender<bool>) {
    let mut first = true;
    while let Some(frame) = frames.next().await {
        match frame {
            // A reader that is gone does not end the process: the rest of its stream goes nowhere.
            Ok(LogOutput::StdOut { message } | LogOutput::StdIn { message }) => {
                let _ = out.send(Ok(message)).await;
            }
            Ok(LogOutput::StdErr { message }) => {
                let _ = err.send(Ok(message)).await;
            }
            // Before any frame, unframed text is the engine saying why the process did not start.
            Ok(LogOutput::Console { message }) if first => {
                let _ = err.send(Ok(message)).await;
            }
            Ok(LogOutput::Console { .. }) => {
                let why = "the output was cut off in the middle of a frame";
                broken(&out, &err, io::ErrorKind::UnexpectedEof, why).await;
                break;
            }
            Err(error) => {
                broken(&out, &err, io::ErrorKind::ConnectionReset, &error.to_string()).await;
                break;
            }
        }
        first = false;
        if out.is_closed() && err.is_closed() {
            break;
        }
    }
    let _ = ended.send(true);
}

/// What each stream of `frames` gets, and whether it is told that it broke, for [`crate::fuzzing`].
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) async fn taken_apart(frames: Vec<Result<LogOutput, Native>>) -> [(Vec<u8>, bool); 2] {
    use tokio::io::AsyncReadExt;
    let (out, stdout) = mpsc::channel(WAITING);
    let (err, stderr) = mpsc::channel(WAITING);
    let (ended, output_ended) = watch::channel(false);
    let read = async |from: mpsc::Receiver<io::Result<Bytes>>| {
        let mut all = Vec::new();
        let broken = source(from).read_to_end(&mut all).await.is_err();
        (all, broken)
    };
    let frames = Box::pin(futures::stream::iter(frames));
    let ((), out, err) = tokio::join!(take_apart(frames, out, err, ended), read(stdout), read(stderr));
    assert!(*output_ended.borrow(), "the end of the output is not told");
    [out, err]
}

async fn broken(out: &Pipe, err: &Pipe, kind: io::ErrorKind, why: &str) {
    let _ = out.send(Err(io::Error::new(kind, why.to_owned()))).await;
    let _ = err.send(Err(io::Error::new(kind, why.to_owned()))).await;
}

fn source(mut frames: mpsc::Receiver<io::Result<Bytes>>) -> Source {
    let stream = futures::stream::poll_fn(move |cx| frames.poll_recv(cx));
    let reader: Box<dyn AsyncRead + Send + Unpin> = Box::new(StreamReader::new(stream));
    reader
}

/// Asks for the exit status until there is one: soon after the output ended, and ever more rarely while it goes on.
async fn wait_for_exit(
    engine: Arc<Engine>,
    id: String,
    mut output_ended: watch::Receiver<bool>,
) -> Result<Exit> {
    let mut pause = FIRST_PAUSE;
    let mut told = false;
    loop {
        if told {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        } else {
            tokio::select! {
                biased;
                // The engine has the status by then, as a rule.
                _ = output_ended.wait_for(|ended| *ended) => {
                    told = true;
                    pause = Duration::from_millis(2);
                }
                () = tokio::time::sleep(pause) => pause = (pause * 8 / 5).min(LAST_PAUSE),
            }
        }
        if let Some(exit) = exit_now(&engine, &id).await? {
            return Ok(exit);
        }
    }
}

/// How the process ended, if it has.
async fn exit_now(engine: &Engine, id: &str) -> Result<Option<Exit>> {
    let lost = |why: Error| {
        Error::unavailable("contact with a process in the box was lost before its end")
            .effect(Effect::Unknown)
            .because(why)
    };
    let asked = engine.api().await?.inspect_exec(id).await;
    let state = asked.map_err(|e| lost(fault("could not ask for its exit status", Call::Reads, e)))?;
    match (state.running, state.exit_code) {
        // The engine gives 128 and the signal for a process that a signal ended, and so does a shell: which of
        // the two it was cannot be told here.
        (Some(false), Some(code)) => Ok(Some(Exit::Code(u8::try_from(code).unwrap_or(u8::MAX)))),
        _ => Ok(None),
    }
}

/// [`kill`] as a type of its own: ending a process runs a process.
fn killing(
    engine: Arc<Engine>,
    container: String,
    id: String,
    mark: String,
) -> BoxFuture<'static, Result<()>> {
    Box::pin(kill(engine, container, id, mark))
}

/// Ends the process and its session from inside the container.
async fn kill(engine: Arc<Engine>, container: String, id: String, mark: String) -> Result<()> {
    for tries in 0..LOOKS {
        match exit_now(&engine, &id).await {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(error) => {
                // Where the container is gone, the process went with it.
                return if matches!(engine.inspect(&container).await, Ok(None)) {
                    Ok(())
                } else {
                    Err(error)
                };
            }
        }
        // Without full privilege, root may not look at the environment of the user's processes.
        for who in [As::Root, As::User] {
            let leader = kill_once(&engine, &container, &mark, "", who).await?;
            if who == As::User && !leader.is_empty() {
                // The user cannot end what runs as root in that session.
                kill_once(&engine, &container, &mark, &leader, As::Root).await?;
            }
            if !leader.is_empty() {
                return Ok(());
            }
        }
        // The engine has taken the process on and not started it yet, or has not noticed its end.
        tokio::time::sleep(Duration::from_millis(10) * tries).await;
    }
    Err(Error::failed("a process in the box cannot be ended: it took a new environment, so it is not found")
        .fix("end it by a command in the box, or stop the box"))
}

/// Runs the script; what it printed is the ID of the session it ended.
async fn kill_once(
    engine: &Arc<Engine>,
    container: &str,
    mark: &str,
    leader: &str,
    who: As,
) -> Result<String> {
    let argv = ["sh", "-c", KILL, "sh", mark, leader].map(str::to_owned);
    match run(engine, container, &argv, who).await {
        Ok((exit, words)) if exit.success() => Ok(words.trim().to_owned()),
        Ok((_, words)) => Err(Error::failed("could not end a process in the box").because_of(words)),
        // It went with its box; the next question for its status says so.
        Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Gone) => Ok(String::new()),
        Err(error) => Err(error),
    }
}
