//! Engines that are down, slow, cut off or not engines at all: what a caller is told, and that it is told in time.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bbbox_core::{
    Effect, ErrorKind,
    backend::{Backend, Switched},
    guest::{Guest, Power},
    id::{BackendId, BoxId, InstallId, KindId},
    size::Size,
    transport::{Exit, Process},
};
use bbbox_docker::{Docker, DockerConfig};
use common::Told;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

/// What the engine does with a request.
enum Reply {
    Json(u16, String),
    Text(u16, &'static str),
    /// It never answers.
    Silence,
    /// It closes the connection without an answer.
    Cut,
    /// It takes an exec's streams on, sends these bytes and closes.
    Stream(Vec<u8>),
    /// It takes an exec's streams on, sends these bytes and then nothing for ever.
    Hang(Vec<u8>),
}

type Script = Arc<dyn Fn(&str, &str) -> Reply + Send + Sync>;

/// An engine that answers by a script, with a real engine's recorded answers where the script has none of its own.
struct Engine {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Engine {
    fn start(script: impl Fn(&str, &str) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&asked);
        let script: Script =
            Arc::new(move |method, path| script(method, path).unwrap_or_else(|| recorded(method, path)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&script), Arc::clone(&log)));
            }
        });
        Self { _folder: folder, socket, asked }
    }

    fn backend(&self) -> Docker {
        self.backend_with(false)
    }

    fn backend_with(&self, privileged: bool) -> Docker {
        let host = Some(self.socket.to_str().unwrap().to_owned());
        let config = DockerConfig { host, privileged, ..DockerConfig::default() };
        Docker::connect(BackendId::parse("docker").unwrap(), config).unwrap()
    }

    /// The requests that begin with `what`, with their bodies.
    fn asked(&self, what: &str) -> Vec<String> {
        self.asked.lock().unwrap().iter().filter(|line| line.starts_with(what)).cloned().collect()
    }
}

/// What a real engine answered.
fn recorded(method: &str, path: &str) -> Reply {
    let json = |text: &str| Reply::Json(200, text.to_owned());
    match (method, path) {
        ("GET", "/version") => json(include_str!("../samples/version.json")),
        ("GET", "/info") => json(include_str!("../samples/info.json")),
        ("GET", "/containers/json") => json(include_str!("../samples/containers.json")),
        ("GET", "/volumes") => json(include_str!("../samples/volumes.json")),
        ("GET", p) if p.starts_with("/images/") => json(include_str!("../samples/image.json")),
        ("GET", p) if p.ends_with("/json") && p.contains(&guest().reference) => {
            json(include_str!("../samples/container-running.json"))
        }
        ("GET", p) if p.starts_with("/containers/") => {
            Reply::Json(404, include_str!("../samples/container-none.json").to_owned())
        }
        ("POST", p) if p.ends_with("/exec") => Reply::Json(201, r#"{"Id":"e1"}"#.to_owned()),
        _ => Reply::Json(404, r#"{"message":"page not found"}"#.to_owned()),
    }
}

/// The guest of the recorded answers.
fn guest() -> Guest {
    let container: serde_json::Value =
        serde_json::from_str(include_str!("../samples/container-running.json")).unwrap();
    Guest {
        install: InstallId::parse("insampleinsamp").unwrap(),
        box_id: BoxId::parse("bxsamplesample").unwrap(),
        reference: container["Id"].as_str().unwrap().to_owned(),
        host: None,
        address: None,
        size: Size::new(2, 768),
        data: Default::default(),
        facts: Default::default(),
    }
}

const UPGRADED: &[u8] = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";

async fn answer(mut stream: UnixStream, script: Script, log: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let mut words = head.split_whitespace();
    let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    // The body is part of the request: an engine that answers before it has read it is another case.
    let length =
        head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let mut body = vec![0; length.map_or(0, |n| n.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    let path = target.split('?').next().unwrap();
    log.lock().unwrap().push(format!("{method} {path} {}", String::from_utf8_lossy(&body)));
    let (status, kind, body) = match script(&method, path) {
        Reply::Json(status, body) => (status, "application/json", body.into_bytes()),
        Reply::Text(status, body) => (status, "text/html", body.as_bytes().to_vec()),
        Reply::Silence => return std::future::pending().await,
        Reply::Cut => return,
        Reply::Stream(bytes) => {
            let _ = stream.write_all(&[UPGRADED, &bytes].concat()).await;
            return;
        }
        Reply::Hang(bytes) => {
            let _ = stream.write_all(&[UPGRADED, &bytes].concat()).await;
            return std::future::pending().await;
        }
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
}

fn kind() -> KindId {
    KindId::parse("linux").unwrap()
}

fn at(socket: &str) -> Docker {
    let config = DockerConfig { host: Some(socket.to_owned()), ..DockerConfig::default() };
    Docker::connect(BackendId::parse("docker").unwrap(), config).unwrap()
}

#[tokio::test]
async fn an_engine_that_is_down_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let dead = folder.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    for socket in ["/no/such/engine.sock", dead.to_str().unwrap(), "tcp://127.0.0.1:1"] {
        let docker = at(socket);
        let error = docker.offers().await.unwrap_err();
        assert_eq!((error.kind(), error.effect_of()), (ErrorKind::Unavailable, Effect::None), "{error:?}");
        assert!(error.how_to_fix().unwrap().contains("start the Docker Engine"), "{error:?}");
        for error in [
            docker.capacity(&kind(), &common::install()).await.unwrap_err(),
            docker.acquire(&common::order(&common::install()), &Told::default()).await.unwrap_err(),
            docker.held(&common::install()).await.unwrap_err(),
            docker.power(&guest()).await.unwrap_err(),
            docker.release(&guest(), &Told::default()).await.unwrap_err(),
        ] {
            assert_eq!(
                (error.kind(), error.effect_of()),
                (ErrorKind::Unavailable, Effect::None),
                "{error:?}"
            );
        }
        let checks = docker.doctor().await;
        assert_eq!(checks.len(), 1);
        assert!(checks[0].fix.is_some());
    }
}

#[tokio::test]
async fn what_is_not_an_engine_is_told_apart() {
    let proxy = Engine::start(|_, _| Some(Reply::Text(503, "no healthy upstream")));
    let error = proxy.backend().offers().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.chain().contains("no healthy upstream"), "{error:?}");

    let page = Engine::start(|_, _| Some(Reply::Text(200, "<html>hello</html>")));
    let error = page.backend().offers().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.how_to_fix().is_some(), "{error:?}");
    // Nor does a proxy that passes some calls on and answers 404 to others make anything of a box's gone.
    for words in [r#"{"message":"page not found"}"#, "404 page not found", "<html>not found</html>"] {
        let page = Engine::start(move |_, path| {
            let refused =
                path.starts_with("/images/") || path.starts_with("/volumes") || path.ends_with("/exec");
            refused.then_some(Reply::Text(404, words))
        });
        let docker = page.backend();
        let command = docker.reach(&guest()).await.unwrap().command;
        for error in [
            docker.capacity(&kind(), &common::install()).await.unwrap_err(),
            docker.acquire(&common::order(&common::install()), &Told::default()).await.unwrap_err(),
            docker.held(&guest().install).await.unwrap_err(),
            docker.release(&guest(), &Told::default()).await.unwrap_err(),
            docker.images().unwrap().images().await.unwrap_err(),
            command.spawn(&common::argv(&["true"])).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Failed, "{error:?}");
            assert!(error.chain().contains("not found"), "the words are kept: {error:?}");
            assert!(error.how_to_fix().is_some(), "{error:?}");
        }
    }
    // A page where a container should be is never taken for "no such container".
    let page =
        Engine::start(|_, path| path.contains("/containers/").then_some(Reply::Text(404, "not found")));
    assert!(page.backend().power(&guest()).await.is_err());
    assert!(page.backend().release(&guest(), &Told::default()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_does_not_answer_is_left_in_time() {
    let silent = Engine::start(|_, _| Some(Reply::Silence));
    let began = tokio::time::Instant::now();
    let error = silent.backend().offers().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(began.elapsed().as_secs() <= 10, "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_answer_that_is_lost_may_have_happened() {
    let cut =
        Engine::start(|method, path| (method == "POST" && path.ends_with("/stop")).then_some(Reply::Cut));
    let error = cut.backend().switch().unwrap().stop(&guest()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect_of()), (ErrorKind::Unavailable, Effect::Unknown), "{error:?}");
    let cut = Engine::start(|method, path| {
        (method == "POST" && path == "/containers/create").then_some(Reply::Cut)
    });
    let mut order = common::order(&common::install());
    let error = cut.backend().acquire(&order, &Told::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect_of()), (ErrorKind::Unavailable, Effect::Unknown), "{error:?}");
    // A question that is lost changed nothing.
    let cut = Engine::start(|_, path| (path == "/containers/json").then_some(Reply::Cut));
    order.earlier.tries = 1;
    let error = cut.backend().held(&order.owner.install).await.unwrap_err();
    assert_eq!((error.kind(), error.effect_of()), (ErrorKind::Unavailable, Effect::None), "{error:?}");
}

#[tokio::test]
async fn a_failed_claim_makes_nothing() {
    struct NoClaim;
    #[async_trait::async_trait]
    impl bbbox_core::backend::AcquireHooks for NoClaim {
        async fn claim(&self, _: &Guest) -> bbbox_core::Result<()> {
            Err(bbbox_core::Error::failed("the record cannot be written"))
        }
        async fn task(&self, _: &str) -> bbbox_core::Result<()> {
            Ok(())
        }
        fn timing(&self, _: &str, _: std::time::Duration) {}
        fn progress(&self, _: &str, _: Option<f64>) {}
    }
    let engine = Engine::start(|_, _| None);
    assert!(engine.backend().acquire(&common::order(&common::install()), &NoClaim).await.is_err());
    assert!(engine.asked("POST").is_empty());
}

#[tokio::test]
async fn a_stopped_answer_and_a_listing_of_a_newer_engine() {
    // 304: someone else stopped it between the look and the call.
    let engine = Engine::start(|method, path| {
        (method == "POST" && path.ends_with("/stop")).then(|| Reply::Json(304, String::new()))
    });
    assert_eq!(engine.backend().switch().unwrap().stop(&guest()).await.unwrap(), Switched::Done);
    assert_eq!(engine.backend().power(&guest()).await.unwrap(), Some(Power::Running));
    // A state that this code does not know fails the listing as a whole: never a part of it.
    let newer = Engine::start(|_, path| {
        let text = include_str!("../samples/containers.json").replace("\"running\"", "\"hibernated\"");
        (path == "/containers/json").then_some(Reply::Json(200, text))
    });
    assert_eq!(newer.backend().held(&guest().install).await.unwrap_err().kind(), ErrorKind::Failed);
}

fn frame(stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[stream, 0, 0, 0], &length[..], payload].concat()
}

const EXITED: &str = r#"{"ID":"e1","Running":false,"ExitCode":7,"Pid":1}"#;
const RUNNING: &str = r#"{"ID":"e1","Running":true,"ExitCode":null,"Pid":1}"#;

#[tokio::test]
async fn an_exit_code_that_comes_late_is_waited_for() {
    let asked = AtomicUsize::new(0);
    let engine = Engine::start(move |_, path| match path {
        "/exec/e1/start" => Some(Reply::Stream([frame(1, b"out"), frame(2, b"err")].concat())),
        "/exec/e1/json" => {
            let late = asked.fetch_add(1, Ordering::Relaxed) < 3;
            Some(Reply::Json(200, if late { RUNNING } else { EXITED }.to_owned()))
        }
        _ => None,
    });
    let command = engine.backend().reach(&guest()).await.unwrap().command;
    let Process { stdout, stderr, exit, stdin, .. } = command.spawn(&common::argv(&["x"])).await.unwrap();
    assert_eq!((common::read(stdout).await, common::read(stderr).await), (b"out".to_vec(), b"err".to_vec()));
    assert_eq!(exit.await.unwrap(), Exit::Code(7));
    drop(stdin);
}

#[tokio::test]
async fn output_that_is_cut_off_is_an_error_and_not_an_end() {
    let mut cut = frame(1, b"whole");
    cut.extend(&frame(1, b"cut in the middle")[..12]);
    let engine = Engine::start(move |_, path| match path {
        "/exec/e1/start" => Some(Reply::Stream(cut.clone())),
        "/exec/e1/json" => Some(Reply::Json(404, r#"{"message":"No such exec instance: e1"}"#.to_owned())),
        _ => None,
    });
    let command = engine.backend().reach(&guest()).await.unwrap().command;
    let Process { mut stdout, exit, stdin, .. } = command.spawn(&common::argv(&["x"])).await.unwrap();
    let mut seen = Vec::new();
    let error = stdout.read_to_end(&mut seen).await.unwrap_err();
    assert_eq!((seen.as_slice(), error.kind()), (&b"whole"[..], std::io::ErrorKind::UnexpectedEof));
    let error = exit.await.unwrap_err();
    assert_eq!((error.kind(), error.effect_of()), (ErrorKind::Unavailable, Effect::Unknown), "{error:?}");
    drop(stdin);
}

#[tokio::test]
async fn an_upgrade_that_a_proxy_swallows_is_told() {
    let engine = Engine::start(|_, path| (path == "/exec/e1/start").then_some(Reply::Text(200, "")));
    let command = engine.backend().reach(&guest()).await.unwrap().command;
    let error = command.spawn(&common::argv(&["x"])).await.unwrap_err();
    assert_eq!(error.effect_of(), Effect::Unknown, "{error:?}");
}

/// An engine that starts no container until `refusals` were refused, and whose processes have the capabilities `has`.
fn hardened(refusals: usize, has: &'static str) -> Engine {
    let (made, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    Engine::start(move |method, path| {
        let id = |n: usize| format!(r#"{{"Id":"c{n}","Warnings":[]}}"#);
        match (method, path) {
            ("GET", "/volumes") => Some(Reply::Json(200, r#"{"Volumes":[]}"#.to_owned())),
            ("POST", "/volumes/create") => Some(Reply::Json(
                201,
                r#"{"Name":"n","Driver":"local","Mountpoint":"/","Labels":{},"Options":{}}"#.to_owned(),
            )),
            ("DELETE", p) if p.starts_with("/volumes/") => {
                Some(Reply::Json(404, r#"{"message":"get x: no such volume"}"#.to_owned()))
            }
            ("DELETE", _) => Some(Reply::Json(204, String::new())),
            ("POST", "/containers/create") => {
                Some(Reply::Json(201, id(made.fetch_add(1, Ordering::Relaxed) + 1)))
            }
            // What the container prints: the look's own words, then a box's.
            ("POST", p) if p.ends_with("/attach") => {
                Some(Reply::Stream(frame(1, format!("{has}\nbb-box: ready\n").as_bytes())))
            }
            // The second container is the look, which is never refused.
            ("POST", "/containers/c2/start") => Some(Reply::Json(204, String::new())),
            ("POST", p) if p.ends_with("/start") && refused.fetch_add(1, Ordering::Relaxed) < refusals => {
                let message = include_str!("../samples/privileged-refused.txt").trim();
                Some(Reply::Json(500, format!(r#"{{"message":"{message}"}}"#)))
            }
            ("POST", p) if p.ends_with("/start") => Some(Reply::Json(204, String::new())),
            _ => None,
        }
    })
}

#[tokio::test]
async fn an_engine_that_refuses_full_privilege_gives_all_but_what_it_lacks() {
    let engine = hardened(1, "000001fffeffffff");
    let docker = engine.backend_with(true);
    let order = common::order(&common::install());
    let guest = docker.acquire(&order, &Told::default()).await.unwrap();
    assert_eq!(guest.reference, "c3");
    assert_eq!(
        guest.facts["docker"],
        "inside, with every capability but SYS_RESOURCE, which the engine lacks"
    );
    assert_eq!(engine.asked("DELETE /containers/c1").len(), 1, "what the refusal left is removed");
    let made = engine.asked("POST /containers/create");
    assert_eq!(made.len(), 3);
    assert!(made[0].contains(r#""Privileged":true"#));
    assert!(made[2].contains(r#""SYS_ADMIN""#) && !made[2].contains(r#""SYS_RESOURCE""#), "{}", made[2]);
    assert!(!made[2].contains(r#""Privileged":true"#));
    let noted = engine.asked("POST /volumes/create");
    assert!(noted[0].contains("all but SYS_RESOURCE") && noted[0].contains("apply caps"), "{noted:?}");
    assert!(docker.offers().await.unwrap()[0].capabilities.has("docker"));
    // The next one asks for that at once.
    docker.acquire(&common::order(&common::install()), &Told::default()).await.unwrap();
    assert_eq!(engine.asked("POST /containers/create").len(), 4);
}

#[tokio::test]
async fn an_engine_that_grants_nothing_gives_boxes_without_docker() {
    let engine = hardened(9, "000001ffffffffff");
    let docker = engine.backend_with(true);
    let mut order = common::order(&common::install());
    order.features.insert(bbbox_core::kind::Feature::parse("docker").unwrap());
    let error = docker.acquire(&order, &Told::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.chain().contains("apply caps"), "the engine's own words: {error:?}");
    assert_eq!(engine.asked("POST /containers/create").len(), 2, "no box is made that would not serve");
    assert!(!docker.offers().await.unwrap()[0].capabilities.has("docker"), "and it is not offered again");
}

#[tokio::test]
async fn upkeep_removes_old_builds_without_a_name_and_no_other() {
    let image = |id: &str, tags: &str, made: &str| {
        let build = format!("linux-{id}");
        format!(
            r#"{{"Id":"sha256:{id}","ParentId":"","RepoTags":{tags},"RepoDigests":[],"Created":1,"Size":1,"SharedSize":-1,
            "Labels":{{"bb-box.kind":"linux","bb-box.build":"{build}","bb-box.made":"{made}"}},"Containers":-1}}"#
        )
    };
    let now = jiff::Timestamp::now().to_string();
    let images = [
        image("old", r#"["<none>:<none>"]"#, "2026-01-01T00:00:00Z"),
        image("named", r#"["bbbox/linux:latest"]"#, "2026-01-01T00:00:00Z"),
        image("young", "null", &now),
        image("trial", r#"["bbbox/linux:linux-trial"]"#, "2026-01-01T00:00:00Z"),
    ];
    let images = format!("[{}]", images.join(",").replace("\"RepoTags\":null", "\"RepoTags\":[]"));
    let engine = Engine::start(move |method, path| match (method, path) {
        ("GET", "/images/json") => Some(Reply::Json(200, images.clone())),
        ("GET", "/containers/json") => Some(Reply::Json(200, "[]".to_owned())),
        // One is held by a box: that is not a fault.
        ("DELETE", "/images/sha256:old") => {
            Some(Reply::Json(409, r#"{"message":"conflict: image is being used"}"#.to_owned()))
        }
        ("DELETE", p) if p.starts_with("/images/") => Some(Reply::Json(200, "[]".to_owned())),
        ("DELETE", p) if p.starts_with("/volumes/") => Some(Reply::Json(204, String::new())),
        _ => None,
    });
    engine.backend().upkeep().unwrap().maintain(&guest().install).await.unwrap();
    let mut removed = engine.asked("DELETE /images/");
    removed.sort();
    let expected = ["bbbox/linux:linux-named", "bbbox/linux:linux-trial", "sha256:old"];
    assert_eq!(removed, expected.map(|name| format!("DELETE /images/{name} ")));
    // The recorded note is of a box that has no container any more.
    assert_eq!(engine.asked("DELETE /volumes/"), ["DELETE /volumes/bbbox-note-bxsamplesample-2 "]);
}

/// An engine whose builds succeed, and whose containers stop answering at `stuck`: `attach`, `e1` or `e2`.
fn stuck_at(stuck: &'static str) -> Engine {
    let execs = AtomicUsize::new(0);
    Engine::start(move |method, path| {
        let hang_or = |reply: Reply, bytes: &[u8]| {
            if path.contains(stuck) { Reply::Hang(bytes.to_vec()) } else { reply }
        };
        match (method, path) {
            ("GET", "/images/json" | "/containers/json") => Some(Reply::Json(200, "[]".to_owned())),
            ("GET", "/volumes") => Some(Reply::Json(200, r#"{"Volumes":[]}"#.to_owned())),
            ("POST", "/build") => Some(Reply::Json(200, r#"{"stream":"Step 1/1 : FROM x"}"#.to_owned())),
            ("POST", "/containers/create") => {
                Some(Reply::Json(201, r#"{"Id":"c1","Warnings":[]}"#.to_owned()))
            }
            ("POST", "/containers/c1/attach") => {
                Some(hang_or(Reply::Stream(frame(1, b"bb-box: ready\n")), b""))
            }
            ("POST", "/containers/c1/start") => Some(Reply::Json(204, String::new())),
            ("POST", "/containers/c1/exec") => {
                let n = execs.fetch_add(1, Ordering::Relaxed) + 1;
                Some(Reply::Json(201, format!(r#"{{"Id":"e{n}"}}"#)))
            }
            ("POST", p) if p.starts_with("/exec/") => Some(hang_or(Reply::Stream(Vec::new()), b"")),
            ("GET", p) if p.starts_with("/exec/") => {
                let running = p.contains(stuck);
                Some(Reply::Json(200, format!(r#"{{"Running":{running},"ExitCode":0}}"#)))
            }
            ("DELETE", p) if p.starts_with("/images/") => Some(Reply::Json(200, "[]".to_owned())),
            ("DELETE", _) => Some(Reply::Json(204, String::new())),
            _ => None,
        }
    })
}

struct Quiet;

impl bbbox_core::backend::BuildHooks for Quiet {
    fn line(&self, _text: &str) {}
    fn progress(&self, _text: &str, _fraction: Option<f64>) {}
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_does_not_go_on_ends_the_build_and_says_where_it_was() {
    for (stuck, words, most) in
        [("attach", "start script", 65), ("e1", "check", 125), ("e2", "Docker inside it", 95)]
    {
        let engine = stuck_at(stuck);
        let docker = engine.backend_with(true);
        let cancel = tokio_util::sync::CancellationToken::new();
        let began = tokio::time::Instant::now();
        let error = docker.images().unwrap().build(&kind(), &cancel, &Quiet).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed, "{error:?}");
        assert!(error.to_string().contains(words), "{error:?}");
        assert!(began.elapsed().as_secs() <= most, "{stuck}: {:?}", began.elapsed());
        let removed = engine.asked("DELETE /containers/");
        assert!(
            removed.iter().any(|line| line.starts_with("DELETE /containers/bbbox-trial-")),
            "{removed:?}"
        );
        let removed = engine.asked("DELETE /images/");
        assert_eq!(removed.len(), 1, "the image that did not pass goes, and no other: {removed:?}");
    }
}

#[tokio::test]
async fn a_container_whose_labels_cannot_be_read_is_told_and_counts() {
    let good: serde_json::Value = serde_json::from_str(include_str!("../samples/containers.json")).unwrap();
    let broken = |id: &str, label: &str, value: Option<&str>| {
        let mut row = good[0].clone();
        row["Id"] = id.into();
        let labels = row["Labels"].as_object_mut().unwrap();
        match value {
            Some(value) => drop(labels.insert(label.to_owned(), value.into())),
            None => drop(labels.remove(label)),
        }
        row
    };
    let mut rows = vec![
        good[0].clone(),
        broken("c-name", "bb-box.name", Some("Not A Name")),
        broken("c-box", "bb-box.box", None),
        broken("c-size", "bb-box.cores", Some("many")),
    ];
    rows[1]["Labels"]["bb-box.box"] = "bxanotheranoth".into();
    rows[3]["Labels"]["bb-box.box"] = "bxthethirdthir".into();
    let rows = serde_json::Value::from(rows).to_string();
    let engine = Engine::start(move |method, path| match (method, path) {
        ("GET", "/containers/json") => Some(Reply::Json(200, rows.clone())),
        ("GET", "/containers/c-size/json") => {
            Some(Reply::Json(200, include_str!("../samples/container-running.json").to_owned()))
        }
        _ => None,
    });
    let docker = engine.backend();
    let room = docker.capacity(&kind(), &guest().install).await.unwrap().hosts.remove(0);
    // The first as its note says, the second and the third as their labels do, the last as the engine holds it.
    assert_eq!(room.limits[0].used, 768 + 512 + 512 + 768);
    assert_eq!(room.limits[1].used, 4);
    let counted: Vec<_> = room.counted.keys().map(BoxId::as_str).collect();
    assert_eq!(counted, ["bxanotheranoth", "bxsamplesample", "bxthethirdthir"]);

    let log = Log::default();
    let held = {
        let _listening = tracing::subscriber::set_default(log.clone());
        docker.held(&guest().install).await.unwrap()
    };
    assert_eq!(held.len(), 1, "only what can be read has an owner");
    let told = log.0.lock().unwrap().join("\n");
    for id in ["c-name", "c-box", "c-size"] {
        assert!(told.contains(id), "{told}");
    }
}

/// Keeps what is logged as a warning.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        *of.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        self.0.lock().unwrap().push(format!("{event:?}"));
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
