//! What the tests on a real engine share. Where no engine answers, or it has no image, they say so and pass nothing.
#![allow(dead_code, clippy::unwrap_used, clippy::print_stdout)]

pub(crate) mod fake;

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    sync::Mutex,
    time::Duration,
};

use async_trait::async_trait;
use bbbox_core::{
    Result,
    backend::{AcquireHooks, Backend, Earlier, Order, ReleaseHooks},
    guest::{Guest, Owner},
    id::{BackendId, BoxId, BoxName, InstallId, KindId, ThreadId},
    size::Size,
    transport::{Exit, Process, Source, Transport},
};
use bbbox_docker::{Docker, DockerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::time::Instant::now())
}

pub(crate) fn install() -> InstallId {
    InstallId::draw(random)
}

/// A backend on the engine of this machine, or `None` with the reason printed.
pub(crate) async fn backend() -> Option<Docker> {
    backend_with(DockerConfig::default()).await
}

pub(crate) async fn backend_with(config: DockerConfig) -> Option<Docker> {
    let docker = Docker::connect(BackendId::parse("docker").unwrap(), config).unwrap();
    match docker.capacity(&KindId::parse("linux").unwrap(), &install()).await {
        Err(error) => println!("SKIPPED: {error:?}"),
        Ok(capacity) => match &capacity.hosts[0].closed {
            Some(why) => println!("SKIPPED: {why}"),
            None => return Some(docker),
        },
    }
    None
}

pub(crate) fn order(install: &InstallId) -> Order {
    Order {
        owner: Owner {
            install: install.clone(),
            box_id: BoxId::draw(random),
            thread: Some(ThreadId::parse("thread-1").unwrap()),
            name: BoxName::parse("test-box").unwrap(),
            kind: KindId::parse("linux").unwrap(),
            features: BTreeSet::new(),
        },
        size: Size::new(1, 512),
        host: None,
        earlier: Earlier::default(),
        cancel: CancellationToken::new(),
    }
}

/// Keeps what was told, in order.
#[derive(Default)]
pub(crate) struct Told(pub Mutex<Vec<String>>);

impl Told {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn add(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }
}

#[async_trait]
impl AcquireHooks for Told {
    async fn claim(&self, guest: &Guest) -> Result<()> {
        self.add(format!("claim {}", guest.reference));
        Ok(())
    }
    async fn task(&self, reference: &str) -> Result<()> {
        self.add(format!("task {reference}"));
        Ok(())
    }
    fn timing(&self, step: &str, took: Duration) {
        self.add(format!("{step}: {} ms", took.as_millis()));
    }
    fn progress(&self, text: &str, _fraction: Option<f64>) {
        self.add(text.to_owned());
    }
}

#[async_trait]
impl ReleaseHooks for Told {
    async fn resetting(&self) -> Result<()> {
        Ok(())
    }
    fn progress(&self, _text: &str, _fraction: Option<f64>) {}
}

/// One box for one test; its body's failure is shown after the box was released.
pub(crate) async fn with_box<F>(body: impl FnOnce(Docker, Guest, std::sync::Arc<dyn Transport>) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let Some(docker) = backend().await else { return };
    let guest = docker.acquire(&order(&install()), &Told::default()).await.unwrap();
    let transport = docker.reach(&guest).await.unwrap().command;
    let ran = tokio::spawn(tokio::time::timeout(
        Duration::from_secs(120),
        body(docker.clone(), guest.clone(), transport),
    ))
    .await;
    docker.release(&guest, &Told::default()).await.unwrap();
    ran.unwrap().expect("the test took more than two minutes");
}

pub(crate) struct Ran {
    pub(crate) exit: Exit,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
}

pub(crate) fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

pub(crate) async fn read(mut from: Source) -> Vec<u8> {
    let mut all = Vec::new();
    from.read_to_end(&mut all).await.unwrap();
    all
}

/// Runs to the end with `input`.
pub(crate) async fn finish(process: Process, input: &[u8]) -> Ran {
    let Process { mut stdin, stdout, stderr, exit, .. } = process;
    let feed = async {
        stdin.write_all(input).await.unwrap();
        stdin.shutdown().await.unwrap();
    };
    let ((), out, err, exit) = tokio::join!(feed, read(stdout), read(stderr), exit);
    Ran { exit: exit.unwrap(), out, err }
}

pub(crate) async fn run(transport: &dyn Transport, words: &[&str]) -> Ran {
    finish(transport.spawn(&argv(words)).await.unwrap(), b"").await
}

pub(crate) async fn sh(transport: &dyn Transport, script: &str) -> String {
    let ran = run(transport, &["sh", "-c", script]).await;
    assert_eq!(ran.exit, Exit::Code(0), "{script}: {}", String::from_utf8_lossy(&ran.err));
    String::from_utf8_lossy(&ran.out).trim().to_owned()
}
