//! What runs in a guest: exact, apart from this machine, and ended as asked.

use std::{path::Path, time::Duration};

use bbbox_core::{
    Effect, ErrorKind,
    backend::{Backend as _, CheckOutcome},
    local::Isolation,
    route::Route,
    transport::Exit,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::room::{BOTH, Room, argv, sh, until, way};

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
        let (exit, ..) = argv(&inside, &["test", "-e", hidden.to_str().unwrap()]).await;
        assert_eq!(exit, Exit::Code(1), "{hidden:?} is seen");
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
async fn shutting_its_stdin_down_is_the_end_of_a_process_input() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let mut process = way(&local, &guest).await.spawn(&["wc".to_owned(), "-c".to_owned()]).await.unwrap();
        process.stdin.write_all(b"abc").await.unwrap();
        process.stdin.shutdown().await.unwrap();
        let exit = tokio::time::timeout(Duration::from_secs(5), process.exit).await;
        assert!(exit.expect("the process still waits for input").unwrap().success());
        assert!(process.stdin.write_all(b"d").await.is_err());
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
