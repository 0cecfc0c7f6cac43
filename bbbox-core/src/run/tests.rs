//! The promises of commands and jobs, with real shells and real processes.

use std::{sync::Arc, time::Duration};

use super::{testing::*, *};
use crate::{env::SystemEnv, error::ErrorKind, id::JobId, transport::Exit};

const LONG: Duration = Duration::from_secs(60);

/// Runs `test` against each shell.
async fn in_each_shell(test: impl AsyncFn(Arc<Local>, Session)) {
    for shell in SHELLS {
        let local = Local::new(shell);
        let session = local.session();
        test(local, session).await;
    }
}

async fn ended(session: &Session, spec: JobSpec) -> Ended {
    session.run(&spec, LONG).await.unwrap().ended().expect("it ends in time")
}

fn whole(kept: &Kept) -> Vec<u8> {
    kept.whole().expect("nothing is left out")
}

#[test]
fn what_a_caller_awaits_can_move_between_threads() {
    fn sent<T: Send>(_: &T) {}
    let session = Local::new(SHELLS[0]).session();
    let (spec, job) = (JobSpec::script("true"), JobId::draw(|| 7));
    sent(&session.run(&spec, LONG));
    sent(&session.wait(&job, LONG));
    sent(&session.jobs());
    sent(&session.signal(&job, Signal::Kill));
    sent(&session.remove(&job));
    sent(&session.read(&job, Stream::Stdout, 0, 1));
    let (mut a, mut b) = (Vec::new(), Vec::new());
    sent(&session.stream(&spec, None, &mut a, &mut b));
}

#[tokio::test]
async fn exit_codes_and_signals_come_back_as_they_are() {
    in_each_shell(async |_, session| {
        for code in (0..=255_u8).step_by(5).chain([1, 2, 125, 126, 127, 128, 129, 137, 141, 143]) {
            let ended = ended(&session, JobSpec::script(format!("exit {code}"))).await;
            assert_eq!(ended.exit, Exit::Code(code));
        }
        for (name, number) in [("INT", 2), ("PIPE", 13), ("TERM", 15), ("KILL", 9), ("HUP", 1), ("SEGV", 11)]
        {
            let ended = ended(&session, JobSpec::script(format!("kill -{name} $$"))).await;
            assert_eq!(ended.exit, Exit::Signal(number), "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_box_without_gnu_env_still_runs_everything() {
    for shell in SHELLS {
        let local = Local::without(shell, "env");
        let session = local.session();
        for code in [0, 3, 143, 255] {
            assert_eq!(ended(&session, JobSpec::script(format!("exit {code}"))).await.exit, Exit::Code(code));
        }
        assert_eq!(ended(&session, JobSpec::script("kill -TERM $$")).await.exit, Exit::Signal(15));
        // A program that is interrupted at its default must see the signal at all.
        let job = session.start(&JobSpec::argv(["sleep", "100"])).await.unwrap();
        assert_eq!(session.signal(&job, Signal::Interrupt).await.unwrap(), Signalled::Sent);
        let exit = session.wait(&job, LONG).await.unwrap().ended().unwrap().exit;
        assert_eq!(exit.shell_status(), 130);
    }
}

#[tokio::test]
async fn bytes_are_bytes() {
    let all: Vec<u8> = (1..=255).collect();
    in_each_shell(async |_, session| {
        let out = ended(&session, JobSpec::argv([b"printf".to_vec(), b"%s".to_vec(), all.clone()])).await;
        assert_eq!(whole(&out.stdout), all);
        let out = ended(&session, JobSpec::script("printf %s \"$X\" >&2").env("X", all.clone())).await;
        assert_eq!(whole(&out.stderr), all);
        let mut script = b"printf %s '".to_vec();
        script.extend(all.iter().filter(|b| **b != b'\''));
        script.push(b'\'');
        let out = ended(&session, JobSpec::script(script)).await;
        assert_eq!(whole(&out.stdout).len(), 254);
        let out = ended(&session, JobSpec::script("printf '\\0\\377\\n\\0'; printf '\\0' >&2")).await;
        assert_eq!((whole(&out.stdout), whole(&out.stderr)), (vec![0, 255, 10, 0], vec![0]));
    })
    .await;
}

#[tokio::test]
async fn three_hundred_arguments_and_odd_names_arrive() {
    let mut argv: Vec<Vec<u8>> = vec![b"printf".to_vec(), b"%s\\0".to_vec()];
    for n in 0..300 {
        argv.push(format!(" a'b\"c$d`e\\\n{n}; rm -rf x\u{202e} ").into_bytes());
    }
    argv.push(b"\xff\xfe".to_vec());
    let want: Vec<u8> = argv[2..].iter().flat_map(|word| [word.as_slice(), b"\0"].concat()).collect();
    in_each_shell(async |_, session| {
        assert_eq!(whole(&ended(&session, JobSpec::argv(argv.clone())).await.stdout), want);
    })
    .await;
}

#[tokio::test]
async fn a_script_of_two_mebibytes_runs() {
    let mut script = vec![b'x'; 0];
    while script.len() < 2 << 20 {
        script.extend_from_slice(b"# only a comment that makes it long, with ' and \" and $ in it\n");
    }
    script.extend_from_slice(b"echo end; exit 7\n");
    in_each_shell(async |_, session| {
        let out = ended(&session, JobSpec::script(script.clone())).await;
        assert_eq!((out.exit, whole(&out.stdout)), (Exit::Code(7), b"end\n".to_vec()));
        assert_eq!(whole(&ended(&session, JobSpec::script("ls /proc/$$/fd | wc -l")).await.stderr), b"");
    })
    .await;
}

#[tokio::test]
async fn a_run_ends_with_its_shell_even_while_something_holds_its_output() {
    in_each_shell(async |_, session| {
        let begun = std::time::Instant::now();
        let out = ended(&session, JobSpec::script("sleep 5 & echo started")).await;
        assert_eq!(whole(&out.stdout), b"started\n");
        assert!(begun.elapsed() < Duration::from_secs(4));
    })
    .await;
}

#[tokio::test]
async fn a_command_that_closes_its_own_output_runs_on() {
    in_each_shell(async |_, session| {
        let out = ended(&session, JobSpec::script("exec >&- 2>&-; sleep 0.3; exit 9")).await;
        assert_eq!(out.exit, Exit::Code(9));
    })
    .await;
}

#[tokio::test]
async fn a_missing_command_is_127_with_the_words() {
    in_each_shell(async |_, session| {
        let out = ended(&session, JobSpec::argv(["no-such-command"])).await;
        assert_eq!(out.exit, Exit::Code(127));
        assert!(String::from_utf8(whole(&out.stderr)).unwrap().contains("no-such-command"));
        let out = ended(&session, JobSpec::script("true").dir("/no/such dir")).await;
        assert_eq!(out.exit, Exit::Code(125));
        assert!(String::from_utf8(whole(&out.stderr)).unwrap().contains("/no/such dir"));
    })
    .await;
}

#[tokio::test]
async fn head_and_tail_are_kept_and_the_whole_is_readable() {
    in_each_shell(async |_, session| {
        let spec = JobSpec::script("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done; echo e >&2");
        let out = ended(&session, spec).await;
        let want: Vec<u8> = (0..20000).flat_map(|i| format!("{i}\n").into_bytes()).collect();
        assert_eq!(out.stdout.total, want.len() as u64);
        assert_eq!(out.stdout.head, want[..KEPT]);
        assert_eq!(out.stdout.tail, want[want.len() - KEPT..]);
        assert_eq!(out.stdout.omitted(), want.len() as u64 - 2 * KEPT as u64);
        assert_eq!(whole(&out.stderr), b"e\n");
        let (read, size) = session.read(&out.job, Stream::Stdout, 12_345, 70_000).await.unwrap();
        assert_eq!((size, &read[..]), (want.len() as u64, &want[12_345..82_345]));
        let (end, _) = session.read(&out.job, Stream::Stdout, want.len() as u64 - 3, 100).await.unwrap();
        assert_eq!(end, want[want.len() - 3..]);
        let (past, _) = session.read(&out.job, Stream::Stdout, 1 << 40, 100).await.unwrap();
        assert!(past.is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_run_past_its_wait_is_handed_back_and_outlives_its_client() {
    in_each_shell(async |local, session| {
        let spec = JobSpec::script("echo before; sleep 1; echo after; exit 4");
        let RunResult::Running(job) = session.run(&spec, Duration::from_millis(300)).await.unwrap() else {
            panic!("it cannot have ended");
        };
        assert_eq!(session.read(&job, Stream::Stdout, 0, 100).await.unwrap().0, b"before\n");
        drop(session);
        let again = local.session();
        assert_eq!(again.job(&job).await.unwrap(), JobState::Running);
        let out = again.wait(&job, LONG).await.unwrap().ended().unwrap();
        assert_eq!((out.exit, whole(&out.stdout)), (Exit::Code(4), b"before\nafter\n".to_vec()));
    })
    .await;
}

/// Processes that this one started for `local` and whose command line holds `mark`.
fn pids(local: &Local, mark: &str) -> Vec<i32> {
    let home = local.home.path().to_owned();
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let cwd = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if cwd.starts_with(&home) && String::from_utf8_lossy(&line).contains(mark) {
            let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let parent = status.lines().find_map(|l| l.strip_prefix("PPid:\t")).unwrap_or("0").to_owned();
            if parent == std::process::id().to_string() {
                pids.push(pid);
            }
        }
    }
    pids
}

fn runner_pids(local: &Local) -> Vec<i32> {
    pids(local, "dd bs=1 co")
}

fn kill_hard(pid: impl ToString) {
    std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
}

#[tokio::test]
async fn when_the_runner_is_killed_another_takes_over_and_the_status_is_kept() {
    in_each_shell(async |local, session| {
        let waiting = {
            let session = session.clone();
            tokio::spawn(async move { session.run(&JobSpec::script("sleep 1; echo x; exit 6"), LONG).await })
        };
        until("the job runs", async || {
            let jobs = session.jobs().await.unwrap();
            (jobs.iter().any(|(_, state)| *state == JobState::Running), jobs)
        })
        .await;
        let pids = runner_pids(&local);
        assert_eq!(pids.len(), 1, "one runner");
        kill_hard(pids[0]);
        let out = waiting.await.unwrap().unwrap().ended().unwrap();
        assert_eq!((out.exit, whole(&out.stdout)), (Exit::Code(6), b"x\n".to_vec()));
    })
    .await;
}

#[tokio::test]
async fn the_same_id_is_the_same_job() {
    in_each_shell(async |_, session| {
        let id = JobId::draw({
            let mut n = 0_u64;
            move || {
                n += 1;
                n << 33
            }
        });
        let spec = JobSpec::script("echo x >>count; cat count").id(id.clone());
        assert_eq!(whole(&ended(&session, spec.clone()).await.stdout), b"x\n");
        let again = ended(&session, spec).await;
        assert_eq!((again.job, whole(&again.stdout)), (id, b"x\n".to_vec()));
    })
    .await;
}

#[tokio::test]
async fn terminating_reaches_what_left_the_group() {
    in_each_shell(async |_, session| {
        let spec = JobSpec::script(
            "setsid sleep 1000 & echo $!; setsid -f sh -c 'echo $$; exec sleep 1001'; sleep 1002",
        );
        let job = session.start(&spec).await.unwrap();
        let mut pids = String::new();
        until("both are started", async || {
            let read = session.read(&job, Stream::Stdout, 0, 100).await.unwrap().0;
            pids = String::from_utf8(read).unwrap();
            (pids.lines().count() == 2, pids.clone())
        })
        .await;
        assert_eq!(session.signal(&job, Signal::Kill).await.unwrap(), Signalled::Sent);
        let out = session.wait(&job, LONG).await.unwrap().ended().unwrap();
        assert_eq!(out.exit, Exit::Signal(9));
        for pid in pids.lines() {
            let stat = format!("/proc/{pid}/stat");
            until("it is gone", async || {
                let now = std::fs::read_to_string(&stat).unwrap_or_default();
                (now.is_empty() || now.contains(") Z"), now)
            })
            .await;
        }
        assert_eq!(session.signal(&job, Signal::Kill).await.unwrap(), Signalled::Ended);
    })
    .await;
}

#[tokio::test]
async fn an_interrupt_is_seen_by_the_job() {
    in_each_shell(async |_, session| {
        let job = session
            .start(&JobSpec::script("trap 'echo int; exit 3' INT; echo set; while :; do sleep 0.1; done"))
            .await;
        let job = job.unwrap();
        until("its trap is set", async || {
            let read = session.read(&job, Stream::Stdout, 0, 100).await.unwrap().0;
            (!read.is_empty(), read)
        })
        .await;
        session.signal(&job, Signal::Interrupt).await.unwrap();
        let out = session.wait(&job, LONG).await.unwrap().ended().unwrap();
        assert_eq!((out.exit, whole(&out.stdout)), (Exit::Code(3), b"set\nint\n".to_vec()));
    })
    .await;
}

#[tokio::test]
async fn fifty_at_once_all_end_right() {
    in_each_shell(async |_, session| {
        let runs = (0..50_u8).map(|n| {
            let session = session.clone();
            async move { (n, ended(&session, JobSpec::script(format!("echo {n}; exit {n}"))).await) }
        });
        for (n, out) in futures::future::join_all(runs).await {
            assert_eq!((out.exit, whole(&out.stdout)), (Exit::Code(n), format!("{n}\n").into_bytes()));
        }
    })
    .await;
}

#[tokio::test]
async fn the_next_command_removes_what_was_fetched_and_what_is_old() {
    in_each_shell(async |local, session| {
        let first = ended(&session, JobSpec::script("echo 1")).await.job;
        let jobs = local.home.path().join(".local/state/bb-box/jobs");
        let old = jobs.join("jbold000000000");
        std::fs::create_dir(&old).unwrap();
        std::fs::write(old.join("rc"), "0\n").unwrap();
        std::process::Command::new("touch").args(["-d", "8 days ago"]).arg(old.join("rc")).status().unwrap();
        // The same runner tidies only now and then; a new one does at its first command.
        let session2 = local.session();
        ended(&session2, JobSpec::script("true")).await;
        ended(&session, JobSpec::script("true")).await;
        until("both are gone", async || {
            let left = (jobs.join(first.as_str()).exists(), old.exists());
            (left == (false, false), left)
        })
        .await;
        assert_eq!(session.job(&first).await.unwrap_err().kind(), ErrorKind::Gone);
    })
    .await;
}

#[tokio::test]
async fn a_running_job_is_not_removed_and_an_ended_one_is() {
    let session = Local::new(SHELLS[0]).session();
    let job = session.start(&JobSpec::argv(["sleep", "1000"])).await.unwrap();
    assert_eq!(session.remove(&job).await.unwrap_err().kind(), ErrorKind::Busy);
    session.signal(&job, Signal::Terminate).await.unwrap();
    session.wait(&job, LONG).await.unwrap();
    session.remove(&job).await.unwrap();
    assert_eq!(session.job(&job).await.unwrap_err().kind(), ErrorKind::Gone);
    session.remove(&job).await.unwrap();
}

#[tokio::test]
async fn the_environment_and_the_umask_are_the_users_own() {
    in_each_shell(async |_, session| {
        let out =
            ended(&session, JobSpec::script("echo \"${LC_ALL-none}\"; umask; echo \"$PATH\"; env")).await;
        let text = String::from_utf8(whole(&out.stdout)).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("none"));
        assert!(lines.next().unwrap().ends_with("022"));
        assert_eq!(lines.next().unwrap(), std::env::var("PATH").unwrap());
        assert!(!text.contains("\nbb_"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn a_secret_is_in_no_argument_no_file_and_no_debug_text() {
    in_each_shell(async |local, session| {
        let spec = JobSpec::script("sleep 0.5; test \"$TOKEN\" = s3cr3t-value").env("TOKEN", "s3cr3t-value");
        assert!(!format!("{spec:?}").contains("s3cr3t"));
        let job = session.start(&spec).await.unwrap();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&line).contains("s3cr3t-value"));
        }
        assert_eq!(session.wait(&job, LONG).await.unwrap().ended().unwrap().exit, Exit::Code(0));
        let found =
            std::process::Command::new("grep").args(["-rl", "s3cr3t-value"]).arg(local.home.path()).output();
        assert!(found.unwrap().stdout.is_empty());
    })
    .await;
}

#[tokio::test]
async fn bad_specs_are_refused_before_anything_happens() {
    let session = Local::new(SHELLS[0]).session();
    for spec in [
        JobSpec::argv(Vec::<Vec<u8>>::new()),
        JobSpec::argv([b"a\0b".to_vec()]),
        JobSpec::script(vec![0]),
        JobSpec::script(vec![b' '; LONGEST_SCRIPT + 1]),
        JobSpec::script("true").env("a-b", "x"),
        JobSpec::script("true").env("bb_jobs", "x"),
        JobSpec::script("true").dir(vec![0]),
    ] {
        assert_eq!(session.run(&spec, LONG).await.unwrap_err().kind(), ErrorKind::Invalid, "{spec:?}");
    }
}

#[tokio::test]
async fn a_shell_that_cannot_serve_is_said_to_be_not_ready() {
    let local = Local::new(&["sh", "-c", "echo 'no shell for you' >&2; exit 4", "x"]);
    let error = local.session().ready().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.chain().contains("no shell for you") && error.chain().contains("exit 4"), "{error:?}");
}

#[tokio::test]
async fn noise_before_the_greeting_does_no_harm() {
    let local = Local::new(&["sh", "-c", "printf 'Welcome N0 hello'; exec sh \"$@\"", "x"]);
    let out = ended(&local.session(), JobSpec::script("echo hi")).await;
    assert_eq!(whole(&out.stdout), b"hi\n");
}

#[tokio::test]
async fn one_runner_serves_all_and_closing_it_leaves_jobs_alone() {
    let local = Local::new(SHELLS[0]);
    let runners = Runners::new(Arc::new(SystemEnv));
    let (one, two) = (local.session_in(&runners), local.session_in(&runners));
    let job = one.start(&JobSpec::script("sleep 0.5; exit 3")).await.unwrap();
    two.run(&JobSpec::script("true"), LONG).await.unwrap();
    assert_eq!(runner_pids(&local).len(), 1);
    runners.close(&crate::id::BoxId::parse("bxtest00000000").unwrap());
    until("the runner has left", async || (runner_pids(&local).is_empty(), runner_pids(&local))).await;
    assert_eq!(
        local.session_in(&runners).wait(&job, LONG).await.unwrap().ended().unwrap().exit,
        Exit::Code(3)
    );
}

#[tokio::test]
async fn output_is_followed_live_and_each_stream_keeps_its_order() {
    in_each_shell(async |_, session| {
        let spec = JobSpec::script(
            "i=0; while [ $i -lt 300 ]; do echo o$i; echo e$i >&2; i=$((i+1)); [ $((i%100)) != 0 ] || sleep 0.1; done; exit 5",
        );
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit = session.stream(&spec, None, &mut out, &mut err).await.unwrap();
        assert_eq!(exit, Exit::Code(5));
        let want = |p: &str| (0..300).map(|i| format!("{p}{i}\n")).collect::<String>().into_bytes();
        assert_eq!((out, err), (want("o"), want("e")));
    })
    .await;
}

#[tokio::test]
async fn random_bytes_stream_unchanged_in_and_out() {
    let mut bytes = vec![0_u8; 5 << 20];
    getrandom::fill(&mut bytes).unwrap();
    in_each_shell(async |_, session| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut input = bytes.as_slice();
        let spec = JobSpec::script("cat; exit 3");
        let exit = session.stream(&spec, Some(&mut input), &mut out, &mut err).await.unwrap();
        assert_eq!((exit, out == bytes, err.len()), (Exit::Code(3), true, 0));
    })
    .await;
}

#[tokio::test]
async fn input_that_nobody_reads_does_not_hold_a_run_open() {
    in_each_shell(async |_, session| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut endless = tokio::io::repeat(b'x');
        let exit = session.stream(&JobSpec::script("exit 2"), Some(&mut endless), &mut out, &mut err).await;
        assert_eq!(exit.unwrap(), Exit::Code(2));
    })
    .await;
}

#[tokio::test]
async fn a_job_is_followed_from_an_offset_after_its_end_and_while_it_runs() {
    in_each_shell(async |_, session| {
        let spec = JobSpec::script("head -c 200000 /dev/zero | tr '\\0' a; sleep 0.3; echo b; sleep 30 &");
        let job = session.start(&spec).await.unwrap();
        for _ in 0..2 {
            let mut out = Vec::new();
            let end = session.follow(&job, Stream::Stdout, 199_999, &mut out).await.unwrap();
            assert_eq!((end, out.as_slice()), (200_002, &b"ab\n"[..]));
        }
        let mut err = Vec::new();
        assert_eq!(session.follow(&job, Stream::Stderr, 0, &mut err).await.unwrap(), 0);
        session.signal(&job, Signal::Kill).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_stream_that_is_cut_goes_on_where_it_was() {
    let local = Local::new(SHELLS[0]);
    let session = local.session();
    let spec = JobSpec::script("i=0; while [ $i -lt 20 ]; do echo $i; i=$((i+1)); sleep 0.1; done");
    let job = session.start(&spec).await.unwrap();
    let mut out = Vec::new();
    let cut = async {
        for cut in 0..3 {
            until("there is a stream to cut", async || {
                let streams = pids(&local, "bb_skip");
                streams.iter().for_each(kill_hard);
                (!streams.is_empty(), cut)
            })
            .await;
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
    };
    let (end, ()) = tokio::join!(session.follow(&job, Stream::Stdout, 0, &mut out), cut);
    end.unwrap();
    assert_eq!(out, (0..20).map(|i| format!("{i}\n")).collect::<String>().into_bytes());
}

#[tokio::test]
async fn a_job_whose_supervisor_was_killed_is_lost_not_guessed() {
    let local = Local::new(SHELLS[0]);
    let session = local.session();
    let job = session.start(&JobSpec::script("sleep 0.7; echo x")).await.unwrap();
    let pid_file = local.home.path().join(".local/state/bb-box/jobs").join(job.as_str()).join("pid");
    until("it has a pid", async || {
        let text = std::fs::read_to_string(&pid_file).unwrap_or_default();
        (text.contains(' '), text)
    })
    .await;
    let pid = std::fs::read_to_string(&pid_file).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.split(' ').next().unwrap())).unwrap();
    let parent = stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().to_owned();
    kill_hard(parent);
    assert_eq!(session.job(&job).await.unwrap(), JobState::Running);
    until("it is lost", async || {
        let state = session.job(&job).await.unwrap();
        (state == JobState::Lost, state)
    })
    .await;
    let other = local.session();
    assert_eq!(other.wait(&job, LONG).await.unwrap_err().kind(), ErrorKind::Failed);
    let followed = other.follow(&job, Stream::Stdout, 0, &mut Vec::new()).await;
    assert_eq!(followed.unwrap_err().kind(), ErrorKind::Failed);
    assert_eq!(other.read(&job, Stream::Stdout, 0, 10).await.unwrap().0, b"x\n");
}
