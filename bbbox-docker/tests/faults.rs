//! Engines that are down, slow, cut off or not engines at all: what a caller is told, and that it is told in time.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bbbox_core::{
    Effect, ErrorKind,
    backend::{Backend, Switched},
    guest::{Guest, Power},
    id::BackendId,
    size::Size,
    transport::{Exit, Process},
};
use bbbox_docker::{Docker, DockerConfig};
use common::{
    Told,
    fake::{Engine, Reply, frame, guest, kind},
};
use tokio::io::AsyncReadExt;

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

/// Here its container is missing; there it may be as it was.
#[tokio::test]
async fn a_box_of_another_engine_is_not_gone() {
    let engine = Engine::start(|_, path| {
        let none = || include_str!("../samples/container-none.json").to_owned();
        (path.starts_with("/containers/") && path != "/containers/json").then(|| Reply::Json(404, none()))
    });
    let docker = engine.backend();
    let info: serde_json::Value = serde_json::from_str(include_str!("../samples/info.json")).unwrap();
    let at = |address: &str, id: &str| {
        let data = [("engine", address), ("engine_id", id)].map(|(k, v)| (k.to_owned(), v.to_owned()));
        Guest { data: data.into(), ..guest() }
    };
    let theirs = at("/their/engine.sock", "THEIRS");
    let command = docker.reach(&theirs).await.unwrap().command;
    for error in [
        docker.power(&theirs).await.unwrap_err(),
        docker.release(&theirs, &Told::default()).await.unwrap_err(),
        docker.switch().unwrap().start(&theirs).await.unwrap_err(),
        command.spawn(&["true".to_owned()]).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.effect_of()), (ErrorKind::Unavailable, Effect::None), "{error:?}");
        assert!(error.to_string().contains("is on the Docker Engine at /their/engine.sock"), "{error}");
        assert!(error.how_to_fix().is_some_and(|fix| fix.contains("DOCKER_HOST")), "{error:?}");
    }
    // The same engine under another address, and a guest of before this was recorded.
    for guest in [at("/their/engine.sock", info["ID"].as_str().unwrap()), guest()] {
        assert_eq!(docker.power(&guest).await.unwrap(), None);
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

/// An engine on which a resize to 4 cores and 1024 MiB finds room for `notes` more notes.
fn resized(notes: usize) -> Engine {
    let (made, updated) = (AtomicUsize::new(0), AtomicBool::new(false));
    Engine::start(move |method, path| match (method, path) {
        ("POST", "/volumes/create") if made.load(Ordering::SeqCst) < notes => {
            made.fetch_add(1, Ordering::SeqCst);
            Some(Reply::Json(
                201,
                r#"{"Name":"n","Driver":"local","Mountpoint":"","Labels":{},"Scope":"local","Options":{}}"#
                    .to_owned(),
            ))
        }
        ("POST", "/volumes/create") => {
            Some(Reply::Json(500, r#"{"message":"no space left on device"}"#.to_owned()))
        }
        ("DELETE", path) if path.starts_with("/volumes/") => Some(Reply::Json(204, String::new())),
        ("POST", path) if path.ends_with("/update") => {
            updated.store(true, Ordering::SeqCst);
            Some(Reply::Json(200, r#"{"Warnings":null}"#.to_owned()))
        }
        ("GET", "/volumes") if made.load(Ordering::SeqCst) > 0 => {
            let mut listing: serde_json::Value =
                serde_json::from_str(include_str!("../samples/volumes.json")).unwrap();
            let volumes = listing["Volumes"].as_array_mut().unwrap();
            let mut note = volumes.last().unwrap().clone();
            for (key, value) in [("note", "9"), ("resizing", "yes"), ("cores", "4"), ("memory-mib", "1024")] {
                note["Labels"][format!("bb-box.{key}")] = value.into();
            }
            volumes.push(note);
            Some(Reply::Json(200, listing.to_string()))
        }
        ("GET", path) if updated.load(Ordering::SeqCst) && path.contains(&guest().reference) => {
            let mut container: serde_json::Value =
                serde_json::from_str(include_str!("../samples/container-running.json")).unwrap();
            container["HostConfig"]["NanoCpus"] = 4_000_000_000_i64.into();
            container["HostConfig"]["Memory"] = (1024_i64 << 20).into();
            Some(Reply::Json(200, container.to_string()))
        }
        _ => None,
    })
}

#[tokio::test]
async fn a_resize_that_cannot_be_noted_is_counted_as_it_is() {
    let (before, after) = (Size::new(2, 768), Size::new(4, 1024));
    for (notes, effect, size) in [(0, Effect::None, before), (1, Effect::Applied, after)] {
        let engine = resized(notes);
        let docker = engine.backend();
        let error = docker.resize().unwrap().resize(&guest(), &after).await.unwrap_err();
        assert_eq!(error.effect_of(), effect, "{error:?}");
        assert!(error.chain().contains("no space left"), "{error:?}");
        let told = engine.asked("POST /containers/").len();
        assert_eq!(told, notes, "the engine is told the size only after that was noted");
        let room = docker.capacity(&kind(), &guest().install).await.unwrap().hosts.remove(0);
        assert_eq!(room.counted[&guest().box_id].size, size);
        assert_eq!(docker.held(&guest().install).await.unwrap()[0].guest.size, size);
    }
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
async fn a_box_that_somebody_paused_is_paused_and_not_unknown() {
    let engine = Engine::start(|method, path| {
        let text = include_str!("../samples/container-running.json");
        let paused = text.replace("\"Status\": \"running\"", "\"Status\": \"paused\"");
        let paused = paused.replace("\"Status\":\"running\"", "\"Status\":\"paused\"");
        assert_ne!(paused, text);
        let of_it = method == "GET" && path.ends_with("/json") && path.contains(&guest().reference);
        of_it.then_some(Reply::Json(200, paused))
    });
    assert_eq!(engine.backend().power(&guest()).await.unwrap(), Some(Power::Paused));
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
    order.owner.features.insert(bbbox_core::kind::Feature::parse("docker").unwrap());
    let error = docker.acquire(&order, &Told::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.chain().contains("apply caps"), "the engine's own words: {error:?}");
    assert_eq!(engine.asked("POST /containers/create").len(), 2, "no box is made that would not serve");
    assert!(!docker.offers().await.unwrap()[0].capabilities.has("docker"), "and it is not offered again");
}

#[tokio::test]
async fn upkeep_removes_old_builds_by_their_own_names_and_no_other() {
    let image = |id: &str, tags: &str, made: &str| {
        let build = format!("linux-{id}");
        format!(
            r#"{{"Id":"sha256:{id}","ParentId":"","RepoTags":{tags},"RepoDigests":[],"Created":1,"Size":1,"SharedSize":-1,
            "Labels":{{"bb-box.kind":"linux","bb-box.build":"{build}","bb-box.made":"{made}"}},"Containers":-1}}"#
        )
    };
    let now = jiff::Timestamp::now().to_string();
    let images = [
        // A commit of a box, or what a person built from an image: labels are passed on.
        image("copy", r#"["<none>:<none>"]"#, "2026-01-01T00:00:00Z"),
        image("rescue", "[]", "2026-01-01T00:00:00Z"),
        image("theirs", r#"["mine:1"]"#, "2026-01-01T00:00:00Z"),
        image("current", r#"["bbbox/linux:linux-current","bbbox/linux:latest"]"#, "2026-01-01T00:00:00Z"),
        image("young", r#"["bbbox/linux:linux-young"]"#, &now),
        image("held", r#"["bbbox/linux:linux-held"]"#, "2026-01-01T00:00:00Z"),
        image("trial", r#"["bbbox/linux:linux-trial"]"#, "2026-01-01T00:00:00Z"),
    ];
    let images = format!("[{}]", images.join(","));
    let engine = Engine::start(move |method, path| match (method, path) {
        ("GET", "/images/json") => Some(Reply::Json(200, images.clone())),
        ("GET", "/containers/json") => Some(Reply::Json(200, "[]".to_owned())),
        // One is held by a box: that is not a fault.
        ("DELETE", "/images/bbbox/linux:linux-held") => {
            Some(Reply::Json(409, r#"{"message":"conflict: image is being used"}"#.to_owned()))
        }
        ("DELETE", p) if p.starts_with("/images/") => Some(Reply::Json(200, "[]".to_owned())),
        ("DELETE", p) if p.starts_with("/volumes/") => Some(Reply::Json(204, String::new())),
        _ => None,
    });
    engine.backend().upkeep().unwrap().maintain(&guest().install).await.unwrap();
    let mut removed = engine.asked("DELETE /images/");
    removed.sort();
    let expected = ["bbbox/linux:linux-held", "bbbox/linux:linux-trial"];
    assert_eq!(removed, expected.map(|name| format!("DELETE /images/{name} ")));
    // The recorded note is of a box that has no container any more.
    assert_eq!(engine.asked("DELETE /volumes/"), ["DELETE /volumes/bbbox-note-bxsamplesample-2 "]);
}
