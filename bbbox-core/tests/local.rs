//! The reference backend, with real processes: each test runs with namespaces (where the machine grants them) and
//! without, and where it runs as root all of them run once more as an ordinary user.

#![cfg(all(feature = "local", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
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
    Effect, Error, ErrorKind, Result,
    backend::{
        AcquireHooks, Backend, CheckOutcome, Earlier, Order, ReleaseHooks, Released, Switch as _, Switched,
    },
    capacity::LimitName,
    guest::{Guest, Owner, Power},
    id::{BackendId, BoxId, BoxName, InstallId, KindId, ThreadId},
    local::{Isolation, Local, LocalConfig},
    route::Route,
    size::Size,
    transport::{Exit, Transport},
};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const BOTH: [Isolation; 2] = [Isolation::Auto, Isolation::None];

/// What the backend told while it made a guest.
#[derive(Default)]
struct Hooks {
    claimed: Mutex<Vec<Guest>>,
    /// The folder of guests, to see that nothing is there at the claim.
    seen_at_claim: Mutex<usize>,
    dir: PathBuf,
    refuse: bool,
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
struct Room {
    dir: tempfile::TempDir,
    isolation: Isolation,
    install: InstallId,
}

fn draw() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut x = (u64::from(std::process::id()) << 32) ^ NEXT.fetch_add(1, Ordering::Relaxed);
    for _ in 0..3 {
        x = (x ^ (x >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x2545_F491);
    }
    x ^ (x >> 29)
}

fn guests_in(dir: &Path) -> usize {
    let names = fs::read_dir(dir).into_iter().flatten().flatten();
    names.filter(|e| e.file_name().to_str().is_some_and(|n| n != ".try")).count()
}

impl Room {
    fn new(isolation: Isolation) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), isolation, install: InstallId::draw(draw) }
    }

    fn local(&self) -> Local {
        let config = LocalConfig { isolation: self.isolation, ..LocalConfig::new(self.dir.path()) };
        Local::open(BackendId::parse("local").unwrap(), config).unwrap()
    }

    fn order(&self) -> Order {
        Order {
            owner: Owner {
                install: self.install.clone(),
                box_id: BoxId::draw(draw),
                thread: None,
                name: BoxName::parse("amber").unwrap(),
                kind: KindId::parse("linux").unwrap(),
            },
            size: Size::new(1, 2048),
            host: None,
            features: BTreeSet::new(),
            earlier: Earlier::default(),
            cancel: tokio_util::sync::CancellationToken::new(),
        }
    }

    fn hooks(&self) -> Hooks {
        Hooks { dir: self.dir.path().to_owned(), ..Hooks::default() }
    }

    async fn guest(&self) -> (Local, Guest) {
        let local = self.local();
        let guest = local.acquire(&self.order(), &self.hooks()).await.unwrap();
        (local, guest)
    }

    fn folder(&self, guest: &Guest) -> PathBuf {
        self.dir.path().join(guest.box_id.as_str())
    }

    /// The pid of the guest's first process, as the machine sees it.
    fn keeper(&self, guest: &Guest) -> i32 {
        let text = fs::read_to_string(self.folder(guest).join("keeper")).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }

    async fn end(self, local: &Local, guest: &Guest) {
        assert_eq!(local.release(guest, &self.hooks()).await.unwrap(), Released::Removed);
        self.is_empty(&guest.box_id);
    }

    /// Nothing of the box is left: no folder, no half folder, no process.
    fn is_empty(&self, id: &BoxId) {
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
fn processes_of(id: &BoxId) -> Vec<i32> {
    processes_with(id.as_str())
}

/// Every living process, but this one, whose environment or arguments hold `text`.
fn processes_with(text: &str) -> Vec<i32> {
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

fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

fn signal(pid: i32, name: &str) {
    let _ = Command::new("kill").args(["-s", name, "--", &pid.to_string()]).stderr(Stdio::null()).status();
}

async fn until(what: &str, mut met: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !met() {
        assert!(Instant::now() < end, "still waiting: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn way(local: &Local, guest: &Guest) -> Arc<dyn Transport> {
    local.reach(guest).await.unwrap().command
}

async fn argv(way: &Arc<dyn Transport>, argv: &[&str]) -> (Exit, Vec<u8>, Vec<u8>) {
    let argv: Vec<_> = argv.iter().map(|a| (*a).to_owned()).collect();
    let mut process = way.spawn(&argv).await.unwrap();
    process.stdin.shutdown().await.unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (a, b) = tokio::join!(process.stdout.read_to_end(&mut out), process.stderr.read_to_end(&mut err));
    a.and(b).unwrap();
    (process.exit.await.unwrap(), out, err)
}

async fn sh(way: &Arc<dyn Transport>, script: &str) -> String {
    let (exit, out, err) = argv(way, &["sh", "-c", script]).await;
    assert!(exit.success(), "{script}: {exit}: {}", String::from_utf8_lossy(&err));
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn a_box_from_acquire_to_release() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let local = room.local();
        let (order, hooks) = (room.order(), room.hooks());
        let guest = local.acquire(&order, &hooks).await.unwrap();
        assert_eq!(*hooks.claimed.lock().unwrap(), std::slice::from_ref(&guest));
        assert_eq!(*hooks.seen_at_claim.lock().unwrap(), 0, "something was made before the claim");
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Running));
        let held = local.held(&room.install).await.unwrap();
        assert_eq!((&held[0].owner, &held[0].guest, held.len()), (&order.owner, &guest, 1));

        let inside = way(&local, &guest).await;
        inside.probe().await.unwrap();
        assert_eq!(
            sh(&inside, "echo kept >file; pwd -P; cd; pwd -P").await.lines().collect::<BTreeSet<_>>().len(),
            1
        );

        assert_eq!(local.stop(&guest).await.unwrap(), Switched::Done);
        assert_eq!(local.stop(&guest).await.unwrap(), Switched::Already);
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Stopped));
        let refused = inside.spawn(&["true".to_owned()]).await.unwrap_err();
        assert_eq!((refused.kind(), refused.effect_of()), (ErrorKind::Refused, Effect::None));
        assert_eq!(inside.route(80).await.unwrap_err().kind(), ErrorKind::Refused);

        assert_eq!(local.start(&guest).await.unwrap(), Switched::Done);
        assert_eq!(local.start(&guest).await.unwrap(), Switched::Already);
        assert_eq!(sh(&inside, "cat file").await, "kept\n");

        assert_eq!(local.release(&guest, &hooks).await.unwrap(), Released::Removed);
        assert_eq!(local.release(&guest, &hooks).await.unwrap(), Released::AlreadyGone);
        assert_eq!(local.power(&guest).await.unwrap(), None);
        assert_eq!(inside.spawn(&["true".to_owned()]).await.unwrap_err().kind(), ErrorKind::Gone);
        assert_eq!(local.start(&guest).await.unwrap_err().kind(), ErrorKind::Gone);
        room.is_empty(&guest.box_id);
    }
}

#[tokio::test]
async fn a_box_with_namespaces_sees_neither_this_machines_processes_nor_its_files() {
    let room = Room::new(Isolation::Auto);
    let (local, guest) = room.guest().await;
    if guest.facts["isolation"].contains("no isolation") {
        eprintln!("not shown here: this machine grants no namespaces");
        return room.end(&local, &guest).await;
    }
    let inside = way(&local, &guest).await;
    let other = tempfile::NamedTempFile::new().unwrap();
    for hidden in [other.path(), room.dir.path()] {
        assert_eq!(sh(&inside, &format!("[ -e '{}' ] || echo hidden", hidden.display())).await, "hidden\n");
    }
    assert_eq!(sh(&inside, "touch /usr/x /etc/x 2>/dev/null || echo refused").await, "refused\n");
    assert_eq!(sh(&inside, "mount -o remount,rw,bind /usr 2>/dev/null || echo refused").await, "refused\n");
    assert_eq!(
        sh(&inside, "uname -n; id -u; echo ~ $HOME; ls /root /home/box").await.lines().next(),
        Some("amber")
    );
    let this = std::process::id();
    assert_eq!(sh(&inside, &format!("[ -e /proc/{this} ] || echo hidden")).await, "hidden\n");
    assert_eq!(sh(&inside, "echo a >/tmp/a; echo b >/var/tmp/b; cat /tmp/a /var/tmp/b").await, "a\nb\n");
    assert!(!Path::new("/tmp/a").exists() && !Path::new("/var/tmp/b").exists());
    assert_eq!(sh(&inside, "echo x >/dev/null; head -c 3 /dev/zero | wc -c; ls /dev/shm").await.trim(), "3");
    let env =
        sh(&inside, "env | cut -d= -f1 | grep -vE '^(PWD|SHLVL|_|OLDPWD)$' | sort | tr '\\n' ' '").await;
    assert_eq!(env, "HOME LANG LOGNAME PATH TERM USER ");
    room.end(&local, &guest).await;
}

#[tokio::test]
async fn a_box_without_isolation_says_so_everywhere() {
    let room = Room::new(Isolation::None);
    let (local, guest) = room.guest().await;
    assert!(guest.facts["isolation"].contains("no isolation"));
    let offer = local.offers().await.unwrap().remove(0);
    assert!(offer.capabilities.command.unwrap().transport.contains("no isolation"));
    let checks = local.doctor().await;
    let check = checks.iter().find(|c| c.id == "local.isolation").unwrap();
    assert!(check.outcome == CheckOutcome::Warning && check.fix.is_some(), "{check:?}");
    let inside = way(&local, &guest).await;
    let home = room.folder(&guest).canonicalize().unwrap().join("home");
    assert_eq!(sh(&inside, "echo $HOME; pwd").await, format!("{0}\n{0}\n", home.display()));
    room.end(&local, &guest).await;
}

#[tokio::test]
async fn installs_that_share_a_folder_see_their_own_guests_and_count_all() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, mine) = room.guest().await;
        let mut order = room.order();
        order.owner.install = InstallId::draw(draw);
        let other = room.local();
        let theirs = other.acquire(&order, &room.hooks()).await.unwrap();

        assert_eq!(local.held(&room.install).await.unwrap().len(), 1);
        let kind = KindId::parse("linux").unwrap();
        let room_left = local.capacity(&kind, &room.install).await.unwrap().hosts.remove(0);
        let used = |name| room_left.limits.iter().find(|l| l.name == name).unwrap().used;
        assert_eq!((used(LimitName::Memory), used(LimitName::Guests)), (4096, 2));
        assert_eq!(room_left.counted.keys().collect::<Vec<_>>(), [&mine.box_id]);

        // A handle that names another install, or another box, is no handle on this guest.
        let stranger = Guest { install: room.install.clone(), ..theirs.clone() };
        let mistaken = Guest { reference: theirs.reference.clone(), ..mine.clone() };
        let escaping = Guest { reference: "../..".into(), ..mine.clone() };
        for guest in [stranger, mistaken, escaping] {
            assert_eq!(local.power(&guest).await.unwrap(), None);
            assert_eq!(local.release(&guest, &room.hooks()).await.unwrap(), Released::AlreadyGone);
            assert_eq!(local.stop(&guest).await.unwrap_err().kind(), ErrorKind::Gone);
            assert_eq!(local.reach(&guest).await.unwrap_err().kind(), ErrorKind::Gone);
        }
        assert_eq!(other.power(&theirs).await.unwrap(), Some(Power::Running));
        order.owner.install = room.install.clone();
        assert_eq!(local.acquire(&order, &room.hooks()).await.unwrap_err().kind(), ErrorKind::Failed);
        other.release(&theirs, &room.hooks()).await.unwrap();
        room.end(&local, &mine).await;
    }
}

#[tokio::test]
async fn nothing_is_made_when_the_claim_fails_or_was_taken_back() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let local = room.local();
        let mut order = room.order();
        let refusing = Hooks { refuse: true, ..room.hooks() };
        assert_eq!(local.acquire(&order, &refusing).await.unwrap_err().kind(), ErrorKind::Unavailable);
        room.is_empty(&order.owner.box_id);

        order.cancel.cancel();
        assert_eq!(local.acquire(&order, &room.hooks()).await.unwrap_err().kind(), ErrorKind::Cancelled);
        room.is_empty(&order.owner.box_id);

        // Taken back while an earlier try's guest is there already.
        order.cancel = tokio_util::sync::CancellationToken::new();
        local.acquire(&order, &room.hooks()).await.unwrap();
        order.cancel.cancel();
        assert_eq!(local.acquire(&order, &room.hooks()).await.unwrap_err().kind(), ErrorKind::Cancelled);
        room.is_empty(&order.owner.box_id);
    }
}

#[tokio::test]
async fn acquires_of_one_box_at_once_make_one_guest() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, order) = (room.local(), room.order());
        local.offers().await.unwrap();
        let first = local.acquire(&order, &room.hooks()).await.unwrap();
        local.stop(&first).await.unwrap();
        let again = (0..8).map(|_| async { local.start(&first).await.unwrap() });
        let done: Vec<_> = futures::future::join_all(again).await;
        assert_eq!(done.iter().filter(|s| **s == Switched::Done).count(), 1, "{done:?}");
        room.end(&local, &first).await;
    }
}

/// Run by the test below in a process of its own, which that kills.
#[tokio::test]
async fn a_maker_that_is_killed() {
    let Ok(said) = std::env::var("BBBOX_TEST_MAKER") else { return };
    let words: Vec<_> = said.split('|').collect();
    let room = Room {
        dir: tempfile::tempdir().unwrap(),
        isolation: if words[0] == "none" { Isolation::None } else { Isolation::Auto },
        install: InstallId::parse(words[2]).unwrap(),
    };
    let config = LocalConfig { isolation: room.isolation, ..LocalConfig::new(words[1]) };
    let local = Local::open(BackendId::parse("local").unwrap(), config).unwrap();
    let mut order = room.order();
    order.owner.box_id = BoxId::parse(words[3]).unwrap();
    let guest = local.acquire(&order, &room.hooks()).await.unwrap();
    loop {
        local.stop(&guest).await.unwrap();
        local.start(&guest).await.unwrap();
        local.release(&guest, &room.hooks()).await.unwrap();
        local.acquire(&order, &room.hooks()).await.unwrap();
    }
}

#[tokio::test]
async fn whenever_its_maker_is_killed_a_box_can_be_finished_and_removed() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let local = room.local();
        local.offers().await.unwrap();
        let word = if isolation == Isolation::None { "none" } else { "auto" };
        for step in 0..40_u64 {
            let mut order = room.order();
            let maker = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "a_maker_that_is_killed"])
                .env(
                    "BBBOX_TEST_MAKER",
                    format!("{word}|{}|{}|{}", room.dir.path().display(), room.install, order.owner.box_id),
                )
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let mut maker = maker.unwrap();
            // At a different moment each time: while it starts, makes, stops, starts, removes.
            tokio::time::sleep(Duration::from_micros(step * 2_300)).await;
            maker.kill().unwrap();
            maker.wait().unwrap();

            order.earlier.tries = 1;
            if step % 2 == 0 {
                let guest = local.acquire(&order, &room.hooks()).await.unwrap();
                assert_eq!(local.held(&room.install).await.unwrap().len(), 1);
                way(&local, &guest).await.probe().await.unwrap();
                let first = processes_of(&guest.box_id);
                assert!(first.contains(&room.keeper(&guest)), "step {step}: {first:?}");
                assert_eq!(local.release(&guest, &room.hooks()).await.unwrap(), Released::Removed);
            } else {
                let guest = Guest {
                    install: order.owner.install.clone(),
                    box_id: order.owner.box_id.clone(),
                    reference: order.owner.box_id.to_string(),
                    host: None,
                    address: None,
                    size: order.size,
                    data: Default::default(),
                    facts: Default::default(),
                };
                local.release(&guest, &room.hooks()).await.unwrap();
                assert_eq!(local.power(&guest).await.unwrap(), None);
            }
            // A child that the maker left between fork and exec still shows the maker's own environment.
            until("the maker's children are gone", || processes_of(&order.owner.box_id).is_empty()).await;
            room.is_empty(&order.owner.box_id);
        }
    }
}

#[tokio::test]
async fn a_stop_ends_everything_that_runs_in_the_box() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let inside = way(&local, &guest).await;
        let script = "setsid sh -c 'trap \"\" TERM HUP; echo $$ >daemon; exec sleep 4242' >/dev/null 2>&1 </dev/null & \
                      nohup sleep 4243 >/dev/null 2>&1 & until [ -s daemon ]; do :; done";
        sh(&inside, script).await;
        let kept = inside.spawn(&["sleep".to_owned(), "4244".to_owned()]).await.unwrap();
        let running = |n: &str| !processes_with(&format!("sleep\0{n}\0")).is_empty();
        until("the daemons run", || ["4242", "4243", "4244"].iter().all(|n| running(n))).await;
        local.stop(&guest).await.unwrap();
        for n in ["4242", "4243", "4244"] {
            assert!(!running(n), "sleep {n} outlived the stop");
        }
        assert_eq!(kept.exit.await.unwrap(), Exit::Signal(9));
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn orphans_that_end_are_collected() {
    let room = Room::new(Isolation::Auto);
    let (local, guest) = room.guest().await;
    if guest.facts["isolation"].contains("no isolation") {
        eprintln!("not shown here: without namespaces the machine's own first process collects them");
        return room.end(&local, &guest).await;
    }
    let inside = way(&local, &guest).await;
    sh(
        &inside,
        "for i in 1 2 3 4 5 6 7 8 9; do (sh -c 'exec true' &) ; done; (sh -c 'sleep 0.05; exit 3' &)",
    )
    .await;
    let seen = "n=0; while grep -hq ') Z ' /proc/[0-9]*/stat 2>/dev/null; do n=$((n+1)); [ $n -lt 500 ] || exit 1; done";
    sh(&inside, seen).await;
    room.end(&local, &guest).await;
}

#[tokio::test]
async fn a_spawn_is_exact() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let inside = way(&local, &guest).await;
        let odd = ["", " ", "a b", "$HOME", "'\"`\\", "\n\n", "-x", "--", "é\u{202e}", "*", "~", "%s\\n"];
        let (exit, out, _) =
            argv(&inside, &[&["sh", "-c", "printf '<%s>' \"$@\"", "-"], odd.as_slice()].concat()).await;
        assert_eq!(String::from_utf8(out).unwrap(), odd.map(|a| format!("<{a}>")).concat());
        assert!(exit.success());

        let (exit, out, err) =
            argv(&inside, &["sh", "-c", "printf 'o\\0\\377\\r\\n'; printf 'e\\1' >&2; exit 7"]).await;
        assert_eq!(
            (exit, out.as_slice(), err.as_slice()),
            (Exit::Code(7), &b"o\0\xff\r\n"[..], &b"e\x01"[..])
        );
        let (exit, _, err) = argv(&inside, &["no-such-program"]).await;
        assert_eq!(exit, Exit::Code(127));
        assert!(!err.is_empty());
        assert_eq!(inside.spawn(&[]).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(inside.spawn(&["a\0b".to_owned()]).await.unwrap_err().kind(), ErrorKind::Invalid);
        let long = inside.spawn(&["true".to_owned(), "x".repeat(200_000)]).await.unwrap_err();
        assert_eq!((long.kind(), long.effect_of()), (ErrorKind::Invalid, Effect::None));

        for signal in [1_u8, 2, 3, 6, 9, 11, 13, 15] {
            let (exit, ..) = argv(&inside, &["sh", "-c", &format!("ulimit -c 0; kill -{signal} $$")]).await;
            assert_eq!(exit, Exit::Signal(signal));
        }
        let (exit, ..) = argv(&inside, &["sh", "-c", "exit 137"]).await;
        assert_eq!(exit, Exit::Code(137));
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn every_exit_code_comes_back() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let inside = way(&local, &guest).await;
        for codes in (0..=255_u8).collect::<Vec<_>>().chunks(8) {
            let runs = codes.iter().map(|code| {
                let inside = inside.clone();
                async move { argv(&inside, &["sh", "-c", &format!("exit {code}")]).await.0 }
            });
            let exits = futures::future::join_all(runs).await;
            assert_eq!(exits, codes.iter().map(|c| Exit::Code(*c)).collect::<Vec<_>>());
        }
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn megabytes_go_in_and_come_out_unchanged() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let mut process = way(&local, &guest).await.spawn(&["cat".to_owned()]).await.unwrap();
        let bytes: Vec<u8> =
            (0..4_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let sent = bytes.clone();
        let mut stdin = process.stdin;
        let send = tokio::spawn(async move {
            stdin.write_all(&sent).await.unwrap();
            stdin.shutdown().await.unwrap();
        });
        let mut back = Vec::new();
        process.stdout.read_to_end(&mut back).await.unwrap();
        send.await.unwrap();
        assert!(back == bytes, "{} of {} bytes, or others", back.len(), bytes.len());
        assert!(process.exit.await.unwrap().success());
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn an_exit_waits_for_no_child_that_holds_the_output() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let inside = way(&local, &guest).await;
        let script = ["sh", "-c", "sleep 600 & echo started; exit 5"].map(str::to_owned);
        let mut process = inside.spawn(&script).await.unwrap();
        let exit =
            tokio::time::timeout(Duration::from_secs(5), process.exit).await.expect("it waits for the child");
        assert_eq!(exit.unwrap(), Exit::Code(5));
        let mut line = [0; 8];
        process.stdout.read_exact(&mut line).await.unwrap();
        assert_eq!(&line, b"started\n");
        // The child still has the stream; a kill after the end takes it too, and the stream ends.
        process.kill.await.unwrap();
        let rest = tokio::time::timeout(Duration::from_secs(5), process.stdout.read(&mut line)).await;
        assert_eq!(rest.expect("the child outlived the kill").unwrap(), 0);
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn a_kill_ends_what_was_started_and_nothing_else() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let inside = way(&local, &guest).await;
        let spawn =
            async |script: &str| inside.spawn(&["sh", "-c", script].map(str::to_owned)).await.unwrap();
        let other = spawn("read x; exit 9").await;
        let mut process = spawn("trap '' TERM; sleep 600 & echo up; wait; sleep 600").await;
        let mut line = [0; 3];
        process.stdout.read_exact(&mut line).await.unwrap();
        process.kill.await.unwrap();
        assert_eq!(process.exit.await.unwrap(), Exit::Signal(9));
        assert_eq!(process.stdout.read(&mut line).await.unwrap(), 0);
        let mut stdin = other.stdin;
        stdin.write_all(b"go\n").await.unwrap();
        assert_eq!(other.exit.await.unwrap(), Exit::Code(9));
        other.kill.await.unwrap();
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn a_process_outlives_the_handle_on_it() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let inside = way(&local, &guest).await;
        let script = "exec >/dev/null 2>&1; echo one >made; read x; echo two >ended";
        drop(inside.spawn(&["sh", "-c", script].map(str::to_owned)).await.unwrap());
        let home = room.folder(&guest).join("home");
        until("the process reads its input's end", || home.join("ended").exists()).await;
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn a_box_has_no_terminal_of_its_makers() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let inside = way(&local, &guest).await;
        assert_eq!(sh(&inside, "(: </dev/tty) 2>/dev/null || echo none").await, "none\n");
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn a_keeper_that_is_killed_from_outside_was_not_the_guests_choice() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        assert_eq!(local.stopped(&guest).await.unwrap(), None);
        signal(room.keeper(&guest), "KILL");
        until("the keeper ends", || is_zombie(room.keeper(&guest))).await;
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Stopped));
        let cause = local.stopped(&guest).await.unwrap().unwrap();
        assert!(!cause.by_guest, "{cause:?}");
        assert_eq!(local.start(&guest).await.unwrap(), Switched::Done);
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Running));
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn a_shutdown_from_inside_was_the_guests_choice() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let pid = if guest.facts["isolation"].contains("no isolation") { room.keeper(&guest) } else { 1 };
        let inside = way(&local, &guest).await;
        let _ = inside.spawn(&["kill".to_owned(), pid.to_string()]).await.unwrap().exit.await;
        until("the keeper ends", || is_zombie(room.keeper(&guest))).await;
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Stopped));
        assert!(local.stopped(&guest).await.unwrap().unwrap().by_guest);
        // A machine that restarts shuts everything down too, and then the guest chose nothing.
        let ended = room.folder(&guest).join("ended");
        assert_eq!(fs::read_to_string(&ended).unwrap().trim().len(), 36);
        fs::write(&ended, "another-start\n").unwrap();
        assert!(!local.stopped(&guest).await.unwrap().unwrap().by_guest);
        local.start(&guest).await.unwrap();
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn a_pid_that_is_used_again_is_not_the_guest() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        local.stop(&guest).await.unwrap();
        // The record names a living process: this one. Only its start time tells.
        let record = room.folder(&guest).join("keeper");
        let text = fs::read_to_string(&record).unwrap();
        let (line, rest) = text.split_once('\n').unwrap();
        let words: Vec<_> = line.split(' ').collect();
        fs::write(&record, format!("{} {} {}\n{rest}", std::process::id(), words[1], words[2])).unwrap();
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Stopped));
        assert_eq!(local.stop(&guest).await.unwrap(), Switched::Already);
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn a_release_removes_any_tree_and_follows_no_link() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("precious"), "x").unwrap();
        let home = room.folder(&guest).join("home");
        symlink(outside.path(), home.join("link")).unwrap();
        symlink(outside.path().join("precious"), home.join("file")).unwrap();
        symlink("/", home.join("root")).unwrap();
        let inside = way(&local, &guest).await;
        let script = "mkdir -p ro/deep/er none && echo x >ro/deep/er/x && echo x >none/x && ln -s .. ro/deep/up && \
                      chmod 0 none && chmod 555 ro/deep/er ro/deep ro && \
                      for i in 1 2 3 4 5 6 7 8 9 0; do mkdir -p \"$i/\n $i\" && : >\"$i/\n $i/-rf\"; done && \
                      i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || exit; i=$((i+1)); done";
        sh(&inside, script).await;
        room.end(&local, &guest).await;
        assert_eq!(fs::read_to_string(outside.path().join("precious")).unwrap(), "x");
    }
}

#[tokio::test]
async fn a_home_that_became_a_link_takes_nothing_with_it() {
    let room = Room::new(Isolation::None);
    let (local, guest) = room.guest().await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let folder = room.folder(&guest);
    fs::remove_dir(folder.join("home")).unwrap();
    symlink(outside.path(), folder.join("home")).unwrap();
    room.end(&local, &guest).await;
    assert!(outside.path().join("precious").exists());
    assert_eq!(fs::metadata(outside.path()).unwrap().permissions().mode() & 0o777, 0o555);
}

#[tokio::test]
async fn another_name_thread_and_size_are_recorded() {
    let room = Room::new(Isolation::Auto);
    let (local, guest) = room.guest().await;
    let mut owner = local.held(&room.install).await.unwrap().remove(0).owner;
    owner.name = BoxName::parse("cobalt").unwrap();
    owner.thread = Some(ThreadId::parse("t-1").unwrap());
    for _ in 0..2 {
        local.relabel().unwrap().relabel(&guest, &owner).await.unwrap();
        local.resize().unwrap().resize(&guest, &Size::new(2, 4096)).await.unwrap();
    }
    let held = local.held(&room.install).await.unwrap().remove(0);
    assert_eq!((held.owner, held.guest.size), (owner, Size::new(2, 4096)));
    let kind = KindId::parse("linux").unwrap();
    let room_left = local.capacity(&kind, &room.install).await.unwrap().hosts.remove(0);
    assert_eq!(room_left.limits[0].used, 4096);
    local.stop(&guest).await.unwrap();
    let room_left = local.capacity(&kind, &room.install).await.unwrap().hosts.remove(0);
    assert_eq!((room_left.limits[0].used, room_left.limits[1].used), (0, 1));
    room.end(&local, &guest).await;
}

#[tokio::test]
async fn a_route_reaches_what_listens_on_the_boxs_loopback() {
    let room = Room::new(Isolation::Auto);
    let (local, guest) = room.guest().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let route = way(&local, &guest).await.route(port).await.unwrap();
    assert!(matches!(route, Route::Tcp { .. }));
    let (opened, accepted) = tokio::join!(route.open(), listener.accept());
    opened.unwrap();
    accepted.unwrap();
    room.end(&local, &guest).await;
}

#[tokio::test]
async fn a_listing_that_cannot_be_read_whole_is_no_listing() {
    let room = Room::new(Isolation::None);
    let (local, guest) = room.guest().await;
    let owner = room.folder(&guest).join("owner.json");
    let good = fs::read(&owner).unwrap();
    fs::write(&owner, "{").unwrap();
    let error = local.held(&room.install).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.how_to_fix().is_some(), "{error:?}");
    assert!(local.release(&guest, &room.hooks()).await.is_err(), "not knowing whose it is is not gone");
    fs::write(&owner, good).unwrap();
    room.end(&local, &guest).await;
}

#[test]
fn a_configuration_says_every_problem() {
    let config: LocalConfig =
        serde_json::from_str(r#"{"dir":"here","memory-mib":0,"guests":0,"isolation":"none"}"#).unwrap();
    assert_eq!(config.validate().len(), 3, "{:?}", config.validate());
    let error = Local::open(BackendId::parse("local").unwrap(), config).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("guests"), "{error}");
    assert!(serde_json::from_str::<LocalConfig>(r#"{"dir":"/x","sise":1}"#).is_err());
    assert!(LocalConfig::new("/x").validate().is_empty());
}

proptest! {
    #[test]
    fn no_reference_leaves_the_folder(reference in ".{0,40}|(\\.\\./){0,3}bx[a-z0-9]{12}") {
        let room = Room::new(Isolation::None);
        let guest = Guest {
            install: room.install.clone(), box_id: BoxId::draw(draw), reference, host: None, address: None,
            size: Size::new(1, 2048), data: Default::default(), facts: Default::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = room.local();
        prop_assert_eq!(runtime.block_on(local.power(&guest)).unwrap(), None);
        prop_assert_eq!(runtime.block_on(local.release(&guest, &room.hooks())).unwrap(), Released::AlreadyGone);
    }
}

/// Root has powers that would hide a fault: everything again without them, in user namespaces.
#[test]
fn all_of_this_holds_for_an_ordinary_user() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = place.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let done = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"])
        .arg(&program)
        .args(["--test-threads=2"])
        .env("TMPDIR", place.path())
        .env("HOME", place.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}
