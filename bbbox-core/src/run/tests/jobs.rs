//! What a job survives, and what ends it.

use super::*;
use crate::{env::SystemEnv, error::ErrorKind, id::JobId, transport::Exit};

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
        let spec = JobSpec::script("echo x >>count; cat count; head -c 5000 /dev/zero").id(id.clone());
        let want = [&b"x\n"[..], &[0; 5000]].concat();
        assert!(whole(&ended(&session, spec.clone()).await.stdout) == want);
        let again = ended(&session, spec).await;
        assert!(again.job == id && whole(&again.stdout) == want);
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
async fn later_commands_remove_what_was_fetched_and_what_is_old() {
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
        until("both are gone", async || {
            // Commands that follow each other at once leave it to a later one.
            ended(&session, JobSpec::script("true")).await;
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
