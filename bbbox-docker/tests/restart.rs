//! An engine that goes away while a box is made, and one that is not there at all, through the whole of bb-box.
//!
//! The engine itself stays up: what is cut is a socket in front of it.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bbbox_core::{
    ErrorKind,
    boxes::{Acquire, BoxHandle, Boxes},
    guest::Power,
    id::{BackendId, InstallId},
    run::JobSpec,
    size::{Size, SizeChoice},
};
use bbbox_docker::{Docker, DockerConfig};
use bollard::query_parameters as query;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    task::{AbortHandle, JoinSet},
};

const ENGINE: &str = "/var/run/docker.sock";
/// How long the engine is away.
const AWAY: Duration = Duration::from_secs(2);

/// A socket in front of the engine. It goes away, with every connection, once a request with `at` has gone through to
/// the engine, before its answer comes back; and comes back later.
struct Front {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    cuts: Arc<AtomicUsize>,
    serving: AbortHandle,
}

impl Front {
    fn start(at: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine.sock");
        let cuts = Arc::new(AtomicUsize::new(0));
        let listener = UnixListener::bind(&socket).unwrap();
        let serving = tokio::spawn(serve(listener, socket.clone(), at, Arc::clone(&cuts))).abort_handle();
        Self { _folder: folder, socket, cuts, serving }
    }

    /// Goes away for good.
    fn stop(&self) {
        self.serving.abort();
    }
}

async fn serve(mut listener: UnixListener, socket: PathBuf, at: &'static str, cuts: Arc<AtomicUsize>) {
    loop {
        let armed = Arc::new(Mutex::new((cuts.load(Ordering::SeqCst) == 0).then_some(at)));
        let gone = Arc::new(tokio::sync::Notify::new());
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = gone.notified() => break,
                accepted = listener.accept() => {
                    let near = accepted.unwrap().0;
                    connections.spawn(pass(near, Arc::clone(&armed), Arc::clone(&gone)));
                }
            }
        }
        cuts.fetch_add(1, Ordering::SeqCst);
        drop((listener, connections));
        // A socket's file outlives its engine, and nobody listens there then.
        tokio::time::sleep(AWAY).await;
        std::fs::remove_file(&socket).unwrap();
        listener = UnixListener::bind(&socket).unwrap();
    }
}

/// Passes one connection on, and tells when the request that was waited for is through.
async fn pass(near: UnixStream, armed: Arc<Mutex<Option<&'static str>>>, gone: Arc<tokio::sync::Notify>) {
    let Ok(far) = UnixStream::connect(ENGINE).await else { return };
    let ((mut from_near, mut to_near), (mut from_far, mut to_far)) = (near.into_split(), far.into_split());
    let up = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = from_near.read(&mut buffer).await {
            if to_far.write_all(&buffer[..n]).await.is_err() {
                return;
            }
            let line = String::from_utf8_lossy(&buffer[..n]).lines().next().unwrap_or_default().to_owned();
            let hit = armed.lock().unwrap().take_if(|at| line.starts_with("POST ") && line.contains(*at));
            if hit.is_some() {
                gone.notify_one();
                // The answer is not passed on any more: this is dropped with the connection.
                return std::future::pending().await;
            }
        }
        let _ = to_far.shutdown().await;
    };
    let down = async move {
        let _ = tokio::io::copy(&mut from_far, &mut to_near).await;
    };
    tokio::join!(up, down);
}

fn open(socket: &Path) -> Boxes {
    let config = DockerConfig { host: Some(socket.to_str().unwrap().to_owned()), ..DockerConfig::default() };
    let docker = Docker::connect(BackendId::parse("docker").unwrap(), config).unwrap();
    Boxes::builder().backend(Arc::new(docker)).open().unwrap()
}

fn small() -> Acquire {
    Acquire::kind("linux").size(SizeChoice::Custom(Size::new(1, 2048)))
}

/// The IDs of the containers of `install`, from the engine itself.
async fn containers(install: &InstallId) -> Vec<String> {
    let label = HashMap::from([("label", vec![format!("bb-box.install={install}")])]);
    let options = query::ListContainersOptionsBuilder::new().all(true).filters(&label).build();
    let api = bollard::Docker::connect_with_unix(ENGINE, 60, bollard::API_DEFAULT_VERSION).unwrap();
    let listed = api.list_containers(Some(options)).await.unwrap();
    listed.into_iter().filter_map(|container| container.id).collect()
}

async fn works(made: &BoxHandle, install: &InstallId) {
    let here = containers(install).await;
    assert_eq!(here.len(), 1, "{here:?}");
    let status = made.status().await.unwrap();
    assert_eq!(status.power, Some(Power::Running));
    assert_eq!(status.record.guest.unwrap().reference, here[0]);
    let ran = made.run(JobSpec::script("echo works")).await.unwrap();
    assert_eq!(ran.ended().unwrap().stdout.head, b"works\n");
}

async fn cut_at(at: &'static str) {
    if common::backend().await.is_none() {
        return;
    }
    let front = Front::start(at);
    let boxes = open(&front.socket);
    let install = boxes.install_id();
    let began = Instant::now();
    match tokio::time::timeout(Duration::from_secs(90), boxes.acquire(small())).await.unwrap() {
        Ok(made) => {
            println!("{at}: made after {:?}", began.elapsed());
            works(&made, &install).await;
            made.release(true).await.unwrap();
        }
        Err(error) if error.kind() == ErrorKind::NoCapacity => return println!("SKIPPED: {error:?}"),
        Err(error) => {
            println!("{at}: {error:?} after {:?}", began.elapsed());
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
            assert!(error.chain().contains(front.socket.to_str().unwrap()), "{error:?}");
        }
    }
    assert_eq!(front.cuts.load(Ordering::SeqCst), 1, "the engine went away while {at} was asked");
    assert_eq!(containers(&install).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_engine_that_goes_away_while_it_creates_a_container_makes_one_or_none() {
    cut_at("/containers/create").await;
}

#[tokio::test]
async fn an_engine_that_goes_away_while_it_starts_a_container_makes_one_or_none() {
    cut_at("/start").await;
}

#[tokio::test]
async fn an_engine_that_goes_away_while_a_box_gets_ready_makes_one_or_none() {
    cut_at("/exec").await;
}

#[tokio::test]
async fn an_engine_that_is_down_is_told_at_once_with_its_address_and_a_fix() {
    let front = Front::start("nothing that is ever asked");
    let check = async |boxes: &Boxes| {
        let began = Instant::now();
        let error = boxes.acquire(small()).await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(error.chain().contains(front.socket.to_str().unwrap()), "{error:?}");
        assert!(error.how_to_fix().is_some(), "{error:?}");
        assert!(boxes.list().unwrap().is_empty(), "nothing is left behind");
    };
    let known = open(&front.socket);
    let answered = common::backend().await.is_some();
    if answered {
        // One that answered before is told the same way.
        assert!(known.kinds().await.troubles.is_empty());
    }
    front.stop();
    while UnixStream::connect(&front.socket).await.is_ok() {
        tokio::task::yield_now().await;
    }
    check(&open(&front.socket)).await;
    if answered {
        check(&known).await;
    }
}
