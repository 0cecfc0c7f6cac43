//! How true and how fast commands and files are: bytes through `run` and `copy`, and the cost of `true`.
//!
//! `cargo run --release --example fidelity --features docker -- docker 1024`
//!
//! The first word names the backend, the second how many MiB go through. Everything that comes back is compared; the
//! program's own peak memory is shown at the end.

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::{
    env::args,
    fs::File,
    io::{Read, Write},
    path::Path,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bbbox::{
    Error, Result,
    boxes::{Acquire, BoxHandle, Boxes},
    run::{JobSpec, Session},
};
use tokio::io::AsyncWrite;

#[tokio::main]
async fn main() -> Result<()> {
    let backend = args().nth(1).unwrap_or_else(|| "local".to_owned());
    let mib = args().nth(2).and_then(|word| word.parse().ok()).unwrap_or(64);
    let boxes = Boxes::builder().data("target/fidelity").drivers(bbbox::drivers()).open()?;
    let machine = boxes.acquire(Acquire::kind("linux").on(backend)).await?;
    let measured = measure(&machine, mib).await;
    machine.release(true).await?;
    measured
}

async fn measure(machine: &BoxHandle, mib: usize) -> Result<()> {
    let session = machine.session()?;
    latency(&session).await?;
    let dir = Path::new("target/fidelity");
    let (source, back) = (dir.join("source"), dir.join("back"));
    fill(&source, mib).map_err(|error| Error::failed("no test file").because(error))?;

    let begun = Instant::now();
    session.copy_in(&source, "there", &|_, _| {}).await?;
    show("copied in", mib, begun.elapsed());
    let begun = Instant::now();
    session.copy_out("there", &back, &|_, _| {}).await?;
    show("copied out", mib, begun.elapsed());
    same(&source, &back)?;

    let mut out = Compare::with(&source)?;
    let begun = Instant::now();
    session.stream(&JobSpec::argv(["cat", "there"]), None, &mut out, &mut tokio::io::sink()).await?;
    show("streamed out", mib, begun.elapsed());
    out.finish()?;

    let file = tokio::fs::File::open(&source).await;
    let mut file = file.map_err(|error| Error::failed("no test file").because(error))?;
    let mut out = Compare::with(&source)?;
    let begun = Instant::now();
    session.stream(&JobSpec::argv(["cat"]), Some(&mut file), &mut out, &mut tokio::io::sink()).await?;
    show("streamed in and out", mib, begun.elapsed());
    out.finish()?;
    println!("peak memory: {}", peak());
    Ok(())
}

/// What `true` costs, with all that makes it a job.
async fn latency(session: &Session) -> Result<()> {
    let begun = Instant::now();
    session.run(&JobSpec::argv(["true"]), Duration::from_secs(60)).await?;
    println!("first command: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    let mut times = Vec::new();
    for _ in 0..300 {
        let begun = Instant::now();
        let result = session.run(&JobSpec::argv(["true"]), Duration::from_secs(60)).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        if !result.ended().is_some_and(|ended| ended.exit.success()) {
            return Err(Error::failed("true failed"));
        }
    }
    times.sort_by(f64::total_cmp);
    println!("`true`: p50 {:.2} ms, p95 {:.2} ms, p99 {:.2} ms", times[150], times[285], times[297]);
    let begun = Instant::now();
    let spec = JobSpec::argv(["true"]);
    let fifty = (0..50).map(|_| session.run(&spec, Duration::from_secs(60)));
    futures::future::try_join_all(fifty).await?;
    println!("50 at once: {:.0} ms", begun.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

fn show(what: &str, mib: usize, took: Duration) {
    println!("{mib} MiB {what}: {:.2} s, {:.0} MiB/s", took.as_secs_f64(), mib as f64 / took.as_secs_f64());
}

fn fill(path: &Path, mib: usize) -> std::io::Result<()> {
    let (mut random, mut file) = (File::open("/dev/urandom")?, File::create(path)?);
    let mut piece = vec![0; 1 << 20];
    for _ in 0..mib {
        random.read_exact(&mut piece)?;
        file.write_all(&piece)?;
    }
    Ok(())
}

fn same(one: &Path, other: &Path) -> Result<()> {
    let read = |path: &Path| File::open(path).map_err(|error| Error::failed("no test file").because(error));
    let mut want = Compare::with(one)?;
    let mut file = read(other)?;
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return want.finish(),
            Ok(n) => want
                .take(&piece[..n])
                .map_err(|error| Error::failed("it came back otherwise").because(error))?,
            Err(error) => return Err(Error::failed("no test file").because(error)),
        }
    }
}

/// A sink that compares what comes with a file.
struct Compare {
    want: File,
    piece: Vec<u8>,
}

impl Compare {
    fn with(path: &Path) -> Result<Self> {
        let want = File::open(path).map_err(|error| Error::failed("no test file").because(error))?;
        Ok(Self { want, piece: Vec::new() })
    }

    fn take(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.piece.resize(bytes.len(), 0);
        self.want.read_exact(&mut self.piece)?;
        if self.piece == bytes { Ok(()) } else { Err(std::io::Error::other("other bytes")) }
    }

    fn finish(mut self) -> Result<()> {
        match self.want.read(&mut [0]) {
            Ok(0) => Ok(()),
            _ => Err(Error::failed("some of it is missing")),
        }
    }
}

impl AsyncWrite for Compare {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Poll::Ready(self.take(bytes).map(|()| bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("not known here").trim().to_owned()
}
