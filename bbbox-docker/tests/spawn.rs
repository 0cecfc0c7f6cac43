//! Processes in a box on a real engine: bytes, statuses, ends.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::time::{Duration, Instant};

use bbbox_core::transport::{Exit, Process};
use common::{argv, finish, read, run, sh, with_box};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes that no pattern hides a fault in.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[tokio::test]
async fn bytes_arrive_unchanged_both_ways() {
    with_box(|_, _, command| async move {
        let sent = noise(64 * 1024 * 1024);
        let began = Instant::now();
        let ran = finish(command.spawn(&argv(&["cat"])).await.unwrap(), &sent).await;
        println!("64 MiB through cat, both ways: {:?}", began.elapsed());
        assert!(ran.out == sent && ran.err.is_empty());
        assert_eq!(ran.exit, Exit::Code(0));
    })
    .await;
}

#[tokio::test]
async fn streams_keep_their_own_order_when_mixed() {
    with_box(|_, _, command| async move {
        let script = "i=0; while [ $i -lt 2000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
        let ran = run(&*command, &["sh", "-c", script]).await;
        let lines = |word: &str| (0..2000).map(|i| format!("{word} {i}\n")).collect::<String>();
        assert_eq!(String::from_utf8_lossy(&ran.out), lines("out"));
        assert_eq!(String::from_utf8_lossy(&ran.err), lines("err"));
    })
    .await;
}

#[tokio::test]
async fn arguments_arrive_as_they_are() {
    with_box(|_, _, command| async move {
        let words = ["", " ", "a b", "'", "\"", "$HOME", "`id`", "\\", "new\nline", "-n", "ü€😀", "*"];
        let mut full = vec!["printf", "%s\\0"];
        full.extend(words);
        let ran = run(&*command, &full).await;
        let back: Vec<_> =
            ran.out.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
        assert_eq!(back[..back.len() - 1], words.map(str::to_owned));
        let many: Vec<String> = (0..300).map(|i| format!("argument {i}")).collect();
        let mut full = argv(&["sh", "-c", "echo $#", "sh"]);
        full.extend(many);
        let ran = finish(command.spawn(&full).await.unwrap(), b"").await;
        assert_eq!(ran.out, b"300\n");
    })
    .await;
}

#[tokio::test]
async fn exit_statuses_come_back() {
    with_box(|_, _, command| async move {
        for code in [0_u8, 1, 2, 126, 127, 128, 137, 200, 255] {
            let ran = run(&*command, &["sh", "-c", &format!("exit {code}")]).await;
            assert_eq!(ran.exit, Exit::Code(code));
        }
        let ran = run(&*command, &["sh", "-c", "kill -KILL $$"]).await;
        assert_eq!(ran.exit.shell_status(), 137);
        let ran = run(&*command, &["no-such-command"]).await;
        assert_eq!(ran.exit, Exit::Code(127), "{}", String::from_utf8_lossy(&ran.err));
        assert!(ran.out.is_empty());
        assert!(String::from_utf8_lossy(&ran.err).contains("no-such-command"));
        let ran = run(&*command, &["/etc/passwd"]).await;
        assert_eq!(ran.exit, Exit::Code(126), "{}", String::from_utf8_lossy(&ran.err));
    })
    .await;
}

#[tokio::test]
async fn the_end_of_stdin_is_read_and_output_goes_on() {
    with_box(|_, _, command| async move {
        let process = command.spawn(&argv(&["sh", "-c", "wc -c; sleep 0.3; echo after"])).await.unwrap();
        let ran = finish(process, b"four").await;
        assert_eq!(String::from_utf8_lossy(&ran.out), "4\nafter\n");
        // Dropping it is an end as well.
        let Process { stdin, stdout, .. } = command.spawn(&argv(&["wc", "-c"])).await.unwrap();
        drop(stdin);
        assert_eq!(read(stdout).await, b"0\n");
    })
    .await;
}

#[tokio::test]
async fn a_process_has_ended_although_something_holds_its_output() {
    with_box(|_, _, command| async move {
        let began = Instant::now();
        let process = command.spawn(&argv(&["sh", "-c", "sleep 20 & echo started; exit 7"])).await.unwrap();
        assert_eq!(process.exit.await.unwrap(), Exit::Code(7));
        println!("known after {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        assert_eq!(read(process.stdout).await, b"started\n");
    })
    .await;
}

#[tokio::test]
async fn a_process_that_closes_its_output_runs_on() {
    with_box(|_, _, command| async move {
        let script = "exec >&- 2>&-; sleep 1; echo done >/home/box/mark; exit 9";
        let process = command.spawn(&argv(&["sh", "-c", script])).await.unwrap();
        assert_eq!(process.exit.await.unwrap(), Exit::Code(9));
        assert_eq!(sh(&*command, "cat mark").await, "done");
    })
    .await;
}

#[tokio::test]
async fn a_killed_process_takes_its_session_with_it() {
    with_box(|_, _, command| async move {
        let script = "sleep 1001 & sudo sleep 1002 & echo up; wait";
        let Process { mut stdout, exit, kill, stdin, .. } =
            command.spawn(&argv(&["sh", "-c", script])).await.unwrap();
        let other = command.spawn(&argv(&["sleep", "1003"])).await.unwrap();
        let mut up = [0; 3];
        stdout.read_exact(&mut up).await.unwrap();
        while sh(&*command, "pgrep -xc sleep || :").await != "4" {
            // Two, the one beside them, and the start script's own.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        kill.await.unwrap();
        assert_eq!(exit.await.unwrap().shell_status(), 137);
        assert_eq!(sh(&*command, "pgrep -a sleep").await.lines().count(), 2, "only its own session ends");
        drop(stdin);
        other.kill.await.unwrap();
        // One that took a new environment is not found, and that is told.
        let hidden = command.spawn(&argv(&["env", "-i", "sleep", "1006"])).await.unwrap();
        while sh(&*command, "pgrep -fxc 'sleep 1006' || :").await == "0" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(hidden.kill.await.unwrap_err().kind(), bbbox_core::ErrorKind::Failed);
        // After its own end, and at once after a start.
        let done = command.spawn(&argv(&["true"])).await.unwrap();
        done.exit.await.unwrap();
        done.kill.await.unwrap();
        let fresh = command.spawn(&argv(&["sleep", "1004"])).await.unwrap();
        fresh.kill.await.unwrap();
        assert_eq!(fresh.exit.await.unwrap().shell_status(), 137);
    })
    .await;
}

#[tokio::test]
async fn a_reader_that_waits_stops_the_process_and_memory_stays() {
    with_box(|_, _, command| async move {
        let Process { stdout, kill, stdin, .. } =
            command.spawn(&argv(&["sh", "-c", "yes | head -c 200000000 & wait"])).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let state = sh(&*command, "pgrep -xc head").await;
        assert_eq!(state, "1", "nobody reads, so it has not ended");
        assert_eq!(read(stdout).await.len(), 200_000_000);
        drop(stdin);
        kill.await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_route_carries_both_directions_and_half_closes() {
    with_box(|_, _, command| async move {
        sh(&*command, "setsid socat -t 30 TCP-LISTEN:4000,bind=127.0.0.1,fork,reuseaddr SYSTEM:'wc -c; sleep 1; echo late' >/dev/null 2>&1 </dev/null &
            until ss -ltn | grep -q :4000; do sleep 0.05; done").await;
        let mut stream = command.route(4000).await.unwrap().open().await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&back), "5\nlate\n");
    })
    .await;
}

#[tokio::test]
async fn a_probe_answers_and_tells_a_stopped_box() {
    with_box(|docker, guest, command| async move {
        use bbbox_core::backend::Backend;
        command.probe().await.unwrap();
        docker.switch().unwrap().stop(&guest).await.unwrap();
        assert_eq!(command.probe().await.unwrap_err().kind(), bbbox_core::ErrorKind::Refused);
    })
    .await;
}
