//! Starting a runner, and the tasks that serve it.
//!
//! Starting it is the readiness probe: a box whose runner said hello runs commands. Everything that a login or an
//! rc file prints before that is thrown away.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::{
    message::{LONGEST_LINE, parse},
    posix,
    runner::{Runner, Shared},
};
use crate::{
    env::Env,
    error::{Error, Result},
    transport::{Process, Sink, Source, Transport},
};

const SCRIPT: &str = include_str!("../../guest/runner.sh");
/// How long a box may take to answer a start.
const HELLO: Duration = Duration::from_secs(30);
/// How much may come before the hello.
const NOISE: usize = 256 * 1024;
/// How often a runner is looked after.
const TICK: Duration = Duration::from_secs(5);
/// Ticks without a word after which a runner that someone waits for is asked whether it lives.
const QUIET_TICKS: u32 = 3;
/// Ticks without an answer to a ping after which it is lost.
const LOST_TICKS: u32 = 2;
/// Ticks without a request after which it is closed: two minutes.
const IDLE_TICKS: u32 = 24;

/// Starts a runner.
pub(super) async fn open(env: Arc<dyn Env>, transport: &dyn Transport) -> Result<Arc<Runner>> {
    let nonce = format!("N{:016x}", env.random());
    let script = format!("bb_nonce={nonce}\n{}", posix::sent(SCRIPT));
    let mut process = transport.spawn(&posix::loader(script.len())).await?;
    let started = async {
        let sent = async {
            process.stdin.write_all(script.as_bytes()).await?;
            process.stdin.flush().await
        };
        // A shell that refuses to start may close its stdin; what it said tells more.
        let _ = sent.await;
        hello(&mut process.stdout, &nonce).await
    };
    let hello = tokio::select! {
        biased;
        hello = started => hello,
        () = env.sleep(HELLO) => Err("it said nothing for 30 s".to_owned()),
    };
    match hello {
        Ok((jobs_dir, rest)) => Ok(serve(env, process, jobs_dir, rest)),
        Err(why) => Err(not_ready(&*env, process, why).await),
    }
}

/// Reads up to the hello. Gives the jobs' directory and what already came after it.
pub(super) async fn hello(from: &mut Source, nonce: &str) -> Result<(String, Vec<u8>), String> {
    let mut seen = Vec::new();
    loop {
        seen.reserve(4096);
        if from.read_buf(&mut seen).await.map_err(|error| error.to_string())? == 0 {
            return Err(match said(&seen) {
                words if words.is_empty() => "the shell ended without a word".to_owned(),
                words => format!("the shell ended after {words:?}"),
            });
        }
        let begun = find(&seen, nonce.as_bytes());
        let whole = begun.and_then(|at| Some((at, seen[at..].iter().position(|b| *b == b'\n')?)));
        let Some((at, end)) = whole else {
            if seen.len() > NOISE {
                return Err(format!("{NOISE} bytes came without a greeting"));
            }
            continue;
        };
        let rest = seen.split_off(at + end + 1);
        let line = String::from_utf8_lossy(&seen[at..at + end]).into_owned();
        let mut words = line.splitn(5, ' ').skip(1);
        return match (words.next(), words.next(), words.next(), words.next()) {
            (Some("hello"), Some("1"), Some(_), Some(dir)) => Ok((dir.to_owned(), rest)),
            (Some("fail"), ..) => Err(line[nonce.len()..].trim_start_matches(" fail ").to_owned()),
            _ => Err(format!("it greeted with {line:?}")),
        };
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// The end of what came, for an error.
fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(1000)..]).trim().to_owned()
}

async fn not_ready(env: &dyn Env, mut process: Process, why: String) -> Error {
    let mut words = Vec::new();
    let ended = async {
        let mut stderr = (&mut process.stderr).take(64 * 1024);
        let _ = stderr.read_to_end(&mut words).await;
        (&mut process.exit).await
    };
    // The stream of its errors may stay open; what came by then has to do.
    let exit = tokio::select! {
        biased;
        exit = ended => Some(exit),
        () = env.sleep(Duration::from_secs(2)) => None,
    };
    let _ = process.kill.await;
    let mut why = why;
    match exit {
        Some(Err(error)) => return error,
        Some(Ok(exit)) => why.push_str(&format!(" ({exit})")),
        None => {}
    }
    let error = Error::unavailable("the box's shell does not answer")
        .fix("check that the box has a POSIX sh, dd and od, and a home that can be written");
    let words = said(&words);
    error.because_of(if words.is_empty() { why } else { format!("{why}: {words}") })
}

fn serve(env: Arc<dyn Env>, process: Process, jobs_dir: String, rest: Vec<u8>) -> Arc<Runner> {
    let (requests, queue) = mpsc::channel(64);
    let runner = Arc::new(Runner::new(requests, jobs_dir));
    let Process { stdin, stdout, stderr, exit, kill: _ } = process;
    let stop = runner.shared.stop.clone();
    let taken = Arc::new(AtomicU64::new(0));
    tokio::spawn(write(stdin, queue, Arc::clone(&taken), stop.clone()));
    tokio::spawn(drain(stderr, stop.clone()));
    tokio::spawn(read(stdout, rest, Arc::downgrade(&runner), stop.clone()));
    tokio::spawn(keep(env, Arc::downgrade(&runner), taken, stop.clone()));
    let ended = Arc::downgrade(&runner);
    tokio::spawn(async move {
        tokio::select! {
            biased;
            _ = exit => give_up(&ended),
            () = stop.cancelled() => {}
        }
    });
    runner
}

fn give_up(runner: &Weak<Runner>) {
    if let Some(runner) = runner.upgrade() {
        runner.shared.give_up();
    }
}

/// Writes requests, each whole, until the runner is given up.
async fn write(
    mut stdin: Sink,
    mut queue: mpsc::Receiver<Vec<u8>>,
    taken: Arc<AtomicU64>,
    stop: CancellationToken,
) {
    let all = async {
        while let Some(request) = queue.recv().await {
            for part in request.chunks(64 * 1024) {
                stdin.write_all(part).await?;
                taken.fetch_add(1, Ordering::Relaxed);
            }
            stdin.flush().await?;
        }
        Ok::<(), std::io::Error>(())
    };
    // A broken pipe shows to the reader too, which gives the runner up.
    tokio::select! {
        biased;
        _ = all => {}
        () = stop.cancelled() => {}
    }
    let _ = stdin.shutdown().await;
}

async fn drain(mut stderr: Source, stop: CancellationToken) {
    let mut nowhere = tokio::io::sink();
    tokio::select! {
        biased;
        _ = tokio::io::copy(&mut stderr, &mut nowhere) => {}
        () = stop.cancelled() => {}
    }
}

/// Reads messages until the end, or until the runner is given up.
async fn read(mut stdout: Source, mut seen: Vec<u8>, runner: Weak<Runner>, stop: CancellationToken) {
    loop {
        if let Some(runner) = runner.upgrade() {
            take_lines(&mut seen, &runner.shared);
        }
        if seen.len() > LONGEST_LINE {
            tracing::warn!("a box's runner sent a line that is too long");
            return give_up(&runner);
        }
        seen.reserve(16 * 1024);
        let came = tokio::select! {
            biased;
            came = stdout.read_buf(&mut seen) => came.unwrap_or(0),
            () = stop.cancelled() => return,
        };
        if came == 0 {
            return give_up(&runner);
        }
    }
}

pub(super) fn take_lines(seen: &mut Vec<u8>, shared: &Shared) {
    let mut begin = 0;
    while let Some(end) = seen[begin..].iter().position(|b| *b == b'\n') {
        shared.heard.fetch_add(1, Ordering::Relaxed);
        if let Some(message) = parse(&seen[begin..begin + end]) {
            shared.heard(message);
        }
        begin += end + 1;
    }
    seen.drain(..begin);
}

/// Looks after a runner: asks whether it lives when someone waits and it is quiet, gives it up when it does not
/// answer, closes it when nobody used it for two minutes.
async fn keep(env: Arc<dyn Env>, runner: Weak<Runner>, taken: Arc<AtomicU64>, stop: CancellationToken) {
    let (mut last, mut quiet, mut idle) = (0, 0, 0);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = env.sleep(TICK) => {}
        }
        let Some(runner) = runner.upgrade() else { return };
        let now = runner.shared.heard.load(Ordering::Relaxed) + taken.load(Ordering::Relaxed);
        quiet = if now == last { quiet + 1 } else { 0 };
        let load = runner.shared.load();
        idle = if now == last && !load.waited_for { idle + 1 } else { 0 };
        last = now;
        if load.pinged && quiet >= LOST_TICKS {
            tracing::warn!("a box's runner does not answer; another takes over");
            return runner.shared.give_up();
        }
        if load.waited_for && !load.pinged && quiet >= QUIET_TICKS {
            runner.ping_unwaited();
            // The ping itself is counted as taken; the count of silence begins with it.
            quiet = 0;
        }
        if idle >= IDLE_TICKS && runner.shared.give_up_if_idle() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_greeting_without_an_end_is_refused() {
        for first in ["", "N1 hello 1 - "] {
            let mut from: Source =
                Box::new(std::io::Cursor::new(first).chain(tokio::io::repeat(b'x')).take(64 << 20));
            let why = hello(&mut from, "N1").await.unwrap_err();
            assert!(why.contains("without a greeting"), "{why}");
        }
    }
}
