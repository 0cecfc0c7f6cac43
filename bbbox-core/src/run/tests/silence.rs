//! Links that go silent, on a clock that runs ahead: a box is asked, never guessed at.

use futures::future::BoxFuture;
use jiff::Timestamp;

use super::*;
use crate::{
    env::{Env, SystemEnv},
    error::{Effect, ErrorKind},
    transport::Exit,
};

/// The machine's clock, with waits 20 times as short.
struct Hurried;

impl Env for Hurried {
    fn now(&self) -> Timestamp {
        SystemEnv.now()
    }

    fn random(&self) -> u64 {
        SystemEnv.random()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        SystemEnv.sleep(time / 20)
    }

    fn point(&self, at: &str) -> BoxFuture<'static, ()> {
        SystemEnv.point(at)
    }
}

/// Real time that is surely enough.
const AGES: Duration = Duration::from_secs(60 * 20);

fn signal(pid: i32, name: &str) {
    std::process::Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
}

#[tokio::test]
async fn a_runner_that_falls_silent_is_replaced_and_the_job_is_asked_for() {
    for shell in SHELLS {
        let local = Local::new(shell);
        let session = local.session_in(&Runners::new(Arc::new(Hurried)));
        let spec = JobSpec::script("sleep 1; echo x >>count; cat count; exit 8");
        let job = session.start(&spec).await.unwrap();
        let silent = runner_pids(&local);
        signal(silent[0], "-STOP");
        let out = session.wait(&job, AGES).await.unwrap().ended().unwrap();
        assert_eq!((out.exit, whole(&out.stdout)), (Exit::Code(8), b"x\n".to_vec()));
        signal(silent[0], "-KILL");
    }
}

#[tokio::test]
async fn a_request_that_a_silent_runner_swallowed_is_done_once() {
    let local = Local::new(SHELLS[0]);
    let session = local.session_in(&Runners::new(Arc::new(Hurried)));
    session.ready().await.unwrap();
    let silent = runner_pids(&local);
    signal(silent[0], "-STOP");
    let spec = JobSpec::script("echo x >>count; cat count");
    let running = session.run(&spec, AGES);
    let woken = async {
        until("another runner is there", async || (runner_pids(&local).len() > 1, runner_pids(&local))).await;
        // What was swallowed is still in its pipe: now it gets to it, too.
        signal(silent[0], "-CONT");
    };
    let (out, ()) = tokio::join!(running, woken);
    assert_eq!(whole(&out.unwrap().ended().unwrap().stdout), b"x\n");
    until("the first has left", async || (runner_pids(&local).len() < 2, runner_pids(&local))).await;
    let count = std::fs::read_to_string(local.home.path().join("count")).unwrap();
    assert_eq!(count, "x\n");
}

#[tokio::test]
async fn a_runner_that_nobody_uses_leaves_and_comes_back_when_needed() {
    let local = Local::new(SHELLS[0]);
    let session = local.session_in(&Runners::new(Arc::new(Hurried)));
    session.ready().await.unwrap();
    assert_eq!(runner_pids(&local).len(), 1);
    until("it has left", async || (runner_pids(&local).is_empty(), runner_pids(&local))).await;
    assert_eq!(ended(&session, JobSpec::script("exit 2")).await.exit, Exit::Code(2));
}

#[tokio::test]
async fn a_box_that_is_gone_in_the_middle_leaves_the_end_unknown() {
    let local = Local::new(SHELLS[0]);
    let session = local.session_in(&Runners::new(Arc::new(Hurried)));
    let job = session.start(&JobSpec::script("sleep 3")).await.unwrap();
    local.vanish();
    kill_hard(runner_pids(&local)[0]);
    let error = session.wait(&job, AGES).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let run = session.run(&JobSpec::script("true"), AGES).await.unwrap_err();
    assert_eq!((run.kind(), run.effect_of()), (ErrorKind::Unavailable, Effect::None));
}

#[tokio::test]
async fn an_end_that_nobody_heard_is_unknown_and_names_the_job() {
    let local = Local::new(SHELLS[0]);
    let session = local.session_in(&Runners::new(Arc::new(Hurried)));
    session.ready().await.unwrap();
    let spec = JobSpec::script("sleep 20");
    let running = session.run(&spec, AGES);
    let cut = async {
        until("it runs", async || {
            let jobs = session.jobs().await.unwrap();
            (jobs.iter().any(|(_, state)| *state == JobState::Running), jobs)
        })
        .await;
        local.vanish();
        kill_hard(runner_pids(&local)[0]);
    };
    let (error, ()) = tokio::join!(running, cut);
    let error = error.unwrap_err();
    assert_eq!((error.kind(), error.effect_of()), (ErrorKind::Unavailable, Effect::Unknown));
    assert!(error.context().iter().any(|(name, id)| name == "job" && id.starts_with("jb")), "{error:?}");
}
