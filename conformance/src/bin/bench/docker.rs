//! Boxes on a Docker Engine beside the docker command and testcontainers, on the same engine and image.

use std::{path::Path, sync::Arc, time::Duration};

use bbbox::{
    Error, Result,
    backend::{Backend, BuildHooks},
    boxes::{Acquire, BoxHandle, Boxes},
    docker::{Docker, DockerConfig},
    id::{BackendId, KindId},
    run::{JobSpec, RunResult, Session},
};
use futures::future::try_join_all;
use testcontainers::{GenericImage, ImageExt, core::ExecCommand, runners::AsyncRunner};
use tokio_util::sync::CancellationToken;

use crate::{
    command::{drain, succeed},
    measure::{Bar, Figure, compare, timed},
};

const IMAGE: &str = "bbbox/linux";
const MIB: usize = 1024 * 1024;
/// What an acquire, a copy and a followed output may take beside the other way.
const NO_SLOWER: Bar = Bar { p50: 1.0, p99: None };
/// The same engine, for boxes without Docker inside: what testcontainers starts has none.
const PLAIN: &str = "plain";
const WAIT: Duration = Duration::from_secs(60);

/// Measures every figure whose name is wanted.
pub(crate) async fn measure(wanted: &dyn Fn(&str) -> bool, tell: &mut dyn FnMut(Figure)) -> Result<()> {
    let data = tempfile::tempdir().map_err(|e| Error::failed("could not make a folder").because(e))?;
    let docker = Arc::new(Docker::connect(BackendId::parse("docker")?, DockerConfig::default())?);
    built(&*docker).await?;
    let plain = DockerConfig { privileged: false, ..DockerConfig::default() };
    let plain = Arc::new(Docker::connect(BackendId::parse(PLAIN)?, plain)?);
    let boxes = Boxes::builder().data(data.path().join("data")).backend(docker).backend(plain).open()?;
    if wanted("first-command") {
        first_command(&boxes, tell).await?;
    }
    let handle = acquire(&boxes, "docker").await?;
    let all = inside(&handle, data.path(), wanted, tell).await;
    let released = handle.release(true).await;
    all.and(released)
}

/// Builds the image when it is missing or due, so that both sides use the current one.
async fn built(docker: &dyn Backend) -> Result<()> {
    let kind = KindId::parse("linux")?;
    let images = docker.images().ok_or_else(|| Error::failed("the backend builds no images"))?;
    if images.images().await?.iter().any(|image| image.kind == kind && image.due.is_none()) {
        return Ok(());
    }
    images.build(&kind, &CancellationToken::new(), &Silent).await.map(drop)
}

struct Silent;

impl BuildHooks for Silent {
    fn line(&self, _text: &str) {}
    fn progress(&self, _text: &str, _fraction: Option<f64>) {}
}

async fn acquire(boxes: &Boxes, on: &str) -> Result<BoxHandle> {
    boxes.acquire(Acquire::kind("linux").size("small".parse()?).on(on)).await
}

async fn succeeds(session: &Session, job: &JobSpec) -> Result<()> {
    match session.run(job, WAIT).await? {
        RunResult::Ended(ended) if ended.exit.success() => Ok(()),
        other => Err(Error::failed(format!("the command did not succeed: {other:?}"))),
    }
}

/// From the request to the end of the first command.
async fn first_command(boxes: &Boxes, tell: &mut dyn FnMut(Figure)) -> Result<()> {
    let (mut ours, mut plain, mut cli, mut containers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let job = JobSpec::argv(["true"]);
    for round in 0..12 {
        for (on, took) in [("docker", &mut ours), (PLAIN, &mut plain)] {
            let mut handle = None;
            took.push(
                timed(async {
                    let made = acquire(boxes, on).await?;
                    succeeds(&made.session()?, &job).await?;
                    handle = Some(made);
                    Ok::<_, Error>(())
                })
                .await?,
            );
            if let Some(handle) = handle {
                handle.release(true).await?;
            }
        }

        let name = format!("bbbox-bench-{}-{round}", std::process::id());
        let image = format!("{IMAGE}:latest");
        let took = timed(async {
            succeed(
                "docker",
                &["run", "-d", "--init", "--cpus", "1", "--memory", "2g", "--name", &name, &image],
            )
            .await?;
            succeed("docker", &["exec", "-u", "box", &name, "true"]).await
        })
        .await;
        succeed("docker", &["rm", "-f", "-v", &name]).await?;
        cli.push(took?);

        let mut kept = None;
        let took = timed(async {
            let request = GenericImage::new(IMAGE, "latest").with_cmd(["/usr/local/bin/bb-box-start"]);
            let container = request.start().await.map_err(foreign)?;
            let mut ran = container.exec(ExecCommand::new(["true"])).await.map_err(foreign)?;
            // Its end is waited for, as a user would.
            ran.stdout_to_vec().await.map_err(foreign)?;
            kept = Some(container);
            Ok::<_, Error>(())
        })
        .await;
        if let Some(container) = kept {
            container.rm().await.map_err(foreign)?;
        }
        containers.push(took?);
    }
    tell(compare("first-command", "docker run -d + docker exec", &ours, &cli, NO_SLOWER));
    tell(compare(
        "first-command-testcontainers",
        "testcontainers start + exec, neither with Docker inside",
        &plain,
        &containers,
        NO_SLOWER,
    ));
    Ok(())
}

fn foreign(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::failed("testcontainers failed").because(error)
}

/// What is measured in one box.
async fn inside(
    handle: &BoxHandle,
    folder: &Path,
    wanted: &dyn Fn(&str) -> bool,
    tell: &mut dyn FnMut(Figure),
) -> Result<()> {
    let session = handle.session()?;
    let container = format!("bbbox-{}", handle.id());
    if wanted("run-true") {
        run_true(&session, &container, tell).await?;
    }
    if wanted("fifty-at-once") {
        fifty(&session, &container, tell).await?;
    }
    if wanted("copy-256-mib") {
        copy(&session, &container, folder, tell).await?;
    }
    if wanted("follow-1-gib") {
        follow(&session, &container, tell).await?;
    }
    Ok(())
}

async fn run_true(session: &Session, container: &str, tell: &mut dyn FnMut(Figure)) -> Result<()> {
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    let job = JobSpec::argv(["true"]);
    succeeds(session, &job).await?;
    for _ in 0..200 {
        ours.push(timed(succeeds(session, &job)).await?);
        other.push(timed(succeed("docker", &["exec", "-u", "box", container, "true"])).await?);
    }
    let bar = Bar { p50: 0.12, p99: Some(0.25) };
    tell(compare("run-true", "docker exec true", &ours, &other, bar));
    Ok(())
}

async fn fifty(session: &Session, container: &str, tell: &mut dyn FnMut(Figure)) -> Result<()> {
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    let job = JobSpec::script("echo out; echo err >&2");
    for _ in 0..5 {
        ours.push(timed(try_join_all((0..50).map(|_| succeeds(session, &job)))).await?);
        let words = ["exec", "-u", "box", container, "sh", "-c", "echo out; echo err >&2"];
        other.push(timed(try_join_all((0..50).map(|_| succeed("docker", &words)))).await?);
    }
    tell(compare("fifty-at-once", "50 docker exec at once", &ours, &other, NO_SLOWER));
    Ok(())
}

async fn copy(session: &Session, container: &str, folder: &Path, tell: &mut dyn FnMut(Figure)) -> Result<()> {
    let failed = |e: std::io::Error| Error::failed("could not make a file to copy").because(e);
    let file = folder.join("sent");
    let mut bytes = vec![0_u8; 256 * MIB];
    let mut n = 0x9e37_79b9_7f4a_7c15_u64;
    for chunk in bytes.chunks_exact_mut(8) {
        n ^= n << 13;
        n ^= n >> 7;
        n ^= n << 17;
        chunk.copy_from_slice(&n.to_le_bytes());
    }
    tokio::fs::write(&file, &bytes).await.map_err(failed)?;
    let (mut ours_in, mut theirs_in, mut ours_out, mut theirs_out) = (vec![], vec![], vec![], vec![]);
    let back = folder.join("back");
    let (sent, returned) = (file.display().to_string(), folder.join("back-cp").display().to_string());
    let inside = format!("{container}:/home/box/cp");
    for _ in 0..5 {
        // To where nothing is yet, on both sides: `docker cp` deletes what is there first, and we put a file in its place
        // by a rename, which ext4 answers only once the new one is on the disk.
        succeeds(session, &JobSpec::script("rm -f ours cp; sync")).await?;
        ours_in.push(timed(session.copy_in(&file, "ours", &|_, _| {})).await?);
        theirs_in.push(timed(succeed("docker", &["cp", &sent, &inside])).await?);
        for old in [&back, &folder.join("back-cp")] {
            let _ = tokio::fs::remove_file(old).await;
        }
        ours_out.push(timed(session.copy_out("ours", &back, &|_, _| {})).await?);
        theirs_out.push(timed(succeed("docker", &["cp", &inside, &returned])).await?);
    }
    if tokio::fs::read(&back).await.map_err(failed)? != bytes {
        return Err(Error::failed("the file that came back is another"));
    }
    tell(compare("copy-256-mib-in", "docker cp, which checks nothing", &ours_in, &theirs_in, NO_SLOWER));
    tell(compare("copy-256-mib-out", "docker cp, which checks nothing", &ours_out, &theirs_out, NO_SLOWER));
    Ok(())
}

async fn follow(session: &Session, container: &str, tell: &mut dyn FnMut(Figure)) -> Result<()> {
    let (mut ours, mut other) = (Vec::new(), Vec::new());
    let bytes = 1024 * MIB as u64;
    let script = format!("head -c {bytes} /dev/zero");
    let job = JobSpec::script(script.as_str());
    for _ in 0..3 {
        let mut seen = Counted(0);
        let took = timed(session.stream(&job, None, &mut seen, &mut tokio::io::sink())).await?;
        let words = ["exec", "-u", "box", container, "sh", "-c", &script];
        let began = std::time::Instant::now();
        let theirs = drain("docker", &words).await?;
        if seen.0 != bytes || theirs != bytes {
            return Err(Error::failed(format!("of {bytes} bytes, {} and {theirs} came", seen.0)));
        }
        ours.push(took);
        other.push(began.elapsed());
    }
    tell(compare("follow-1-gib", "docker exec's own stream", &ours, &other, NO_SLOWER));
    Ok(())
}

/// Counts what is written to it.
struct Counted(u64);

impl tokio::io::AsyncWrite for Counted {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        self.0 += bytes.len() as u64;
        std::task::Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}
