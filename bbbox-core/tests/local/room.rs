//! What the tests share: a folder of guests that ends with its test, and looks at this machine's processes.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bbbox_core::{
    Error, Result,
    backend::{AcquireHooks, Backend as _, Earlier, Order, ReleaseHooks, Released},
    guest::{Guest, Owner},
    id::{BackendId, BoxId, BoxName, InstallId, KindId},
    local::{Isolation, Local, LocalConfig},
    size::Size,
    transport::{Exit, Transport},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

pub(crate) const BOTH: [Isolation; 2] = [Isolation::Auto, Isolation::None];

/// What the backend told while it made a guest.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) claimed: Mutex<Vec<Guest>>,
    /// The folder of guests, to see that nothing is there at the claim.
    pub(crate) seen_at_claim: Mutex<usize>,
    pub(crate) dir: PathBuf,
    pub(crate) refuse: bool,
}

#[async_trait]
impl AcquireHooks for Hooks {
    async fn claim(&self, guest: &Guest) -> Result<()> {
        *self.seen_at_claim.lock().unwrap() = guests_in(&self.dir);
        self.claimed.lock().unwrap().push(guest.clone());
        if self.refuse { Err(Error::unavailable("the records cannot be written")) } else { Ok(()) }
    }
    async fn task(&self, _reference: &str) -> Result<()> {
        Ok(())
    }
    fn timing(&self, _step: &str, _took: Duration) {}
    fn progress(&self, _text: &str, _fraction: Option<f64>) {}
}

#[async_trait]
impl ReleaseHooks for Hooks {
    async fn resetting(&self) -> Result<()> {
        Ok(())
    }
    fn progress(&self, _text: &str, _fraction: Option<f64>) {}
}

/// A folder of guests that ends with its test, and every guest in it too.
pub(crate) struct Room {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) isolation: Isolation,
    pub(crate) install: InstallId,
}

pub(crate) fn draw() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut x = (u64::from(std::process::id()) << 32) ^ NEXT.fetch_add(1, Ordering::Relaxed);
    for _ in 0..3 {
        x = (x ^ (x >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x2545_F491);
    }
    x ^ (x >> 29)
}

pub(crate) fn guests_in(dir: &Path) -> usize {
    let names = fs::read_dir(dir).into_iter().flatten().flatten();
    names.filter(|e| e.file_name().to_str().is_some_and(|n| n != ".try")).count()
}

impl Room {
    pub(crate) fn new(isolation: Isolation) -> Self {
        let dir = tempfile::Builder::new().prefix("odd $x '\" \u{e9} -").tempdir().unwrap();
        Self { dir, isolation, install: InstallId::draw(draw) }
    }

    pub(crate) fn local(&self) -> Local {
        let config = LocalConfig { isolation: self.isolation, ..LocalConfig::new(self.dir.path()) };
        Local::open(BackendId::parse("local").unwrap(), config).unwrap()
    }

    pub(crate) fn order(&self) -> Order {
        Order {
            owner: Owner {
                install: self.install.clone(),
                box_id: BoxId::draw(draw),
                thread: None,
                name: BoxName::parse("amber").unwrap(),
                kind: KindId::parse("linux").unwrap(),
                features: BTreeSet::new(),
            },
            size: Size::new(1, 2048),
            host: None,
            earlier: Earlier::default(),
            cancel: tokio_util::sync::CancellationToken::new(),
        }
    }

    pub(crate) fn hooks(&self) -> Hooks {
        Hooks { dir: self.dir.path().to_owned(), ..Hooks::default() }
    }

    pub(crate) async fn guest(&self) -> (Local, Guest) {
        let local = self.local();
        let guest = local.acquire(&self.order(), &self.hooks()).await.unwrap();
        (local, guest)
    }

    pub(crate) fn folder(&self, guest: &Guest) -> PathBuf {
        self.dir.path().join(guest.box_id.as_str())
    }

    /// The pid of the guest's first process, as the machine sees it.
    pub(crate) fn keeper(&self, guest: &Guest) -> i32 {
        let text = fs::read_to_string(self.folder(guest).join("keeper")).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }

    pub(crate) async fn end(self, local: &Local, guest: &Guest) {
        assert_eq!(local.release(guest, &self.hooks()).await.unwrap(), Released::Removed);
        self.is_empty(&guest.box_id);
    }

    /// Nothing of the box is left: no folder, no half folder, no process.
    pub(crate) fn is_empty(&self, id: &BoxId) {
        assert_eq!(guests_in(self.dir.path()), 0, "{:?}", fs::read_dir(self.dir.path()).unwrap().count());
        assert_eq!(processes_of(id), Vec::<i32>::new());
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        for entry in fs::read_dir(self.dir.path()).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            for pid in
                Some(name).filter(|n| n.starts_with("bx")).map(|n| processes_with(&n)).unwrap_or_default()
            {
                signal(pid, "KILL");
            }
        }
    }
}

/// Every process that is the box's by its environment, or was started for it.
pub(crate) fn processes_of(id: &BoxId) -> Vec<i32> {
    processes_with(id.as_str())
}

/// Every living process, but this one, whose environment or arguments hold `text`.
pub(crate) fn processes_with(text: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_str().unwrap_or("").parse::<i32>() else { continue };
        let read = |what| fs::read(entry.path().join(what)).unwrap_or_default();
        let said = [read("environ"), read("cmdline")].concat();
        let ours = pid == std::process::id() as i32;
        if !ours && String::from_utf8_lossy(&said).contains(text) && !is_zombie(pid) {
            found.push(pid);
        }
    }
    found
}

pub(crate) fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

pub(crate) fn signal(pid: i32, name: &str) {
    let _ = Command::new("kill").args(["-s", name, "--", &pid.to_string()]).stderr(Stdio::null()).status();
}

pub(crate) async fn until(what: &str, mut met: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !met() {
        assert!(Instant::now() < end, "still waiting: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) async fn way(local: &Local, guest: &Guest) -> Arc<dyn Transport> {
    local.reach(guest).await.unwrap().command
}

pub(crate) async fn argv(way: &Arc<dyn Transport>, argv: &[&str]) -> (Exit, Vec<u8>, Vec<u8>) {
    let argv: Vec<_> = argv.iter().map(|a| (*a).to_owned()).collect();
    let mut process = way.spawn(&argv).await.unwrap();
    process.stdin.shutdown().await.unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (a, b) = tokio::join!(process.stdout.read_to_end(&mut out), process.stderr.read_to_end(&mut err));
    a.and(b).unwrap();
    (process.exit.await.unwrap(), out, err)
}

pub(crate) async fn sh(way: &Arc<dyn Transport>, script: &str) -> String {
    let (exit, out, err) = argv(way, &["sh", "-c", script]).await;
    assert!(exit.success(), "{script}: {exit}: {}", String::from_utf8_lossy(&err));
    String::from_utf8(out).unwrap()
}
