//! Holds the model of a guest's inside to the real one: the same exchanges, through the core, with a simulated guest and
//! with the real runner in real processes, and the same said by both.

use std::time::Duration;

use bbbox::{
    boxes::{Acquire, BoxHandle, Boxes},
    id::JobId,
    run::{Copied, JobSpec, JobState, RunResult, Session, Signal, Stream},
};

use super::{generate, life, run};
use crate::sim::{Provider, Shape};

const SCRIPTS: &[&str] = &[
    "echo token",
    "echo one;echo two >&2",
    "sleep 0.2;echo late",
    "exit 7",
    "echo before;exit 3",
    "kill -9 $$",
    "echo token;head -c 5000 /dev/zero | tr '\\0' x",
    "head -c 9000 /dev/zero | tr '\\0' x",
    "echo first\necho second",
];

async fn acquired(boxes: &Boxes) -> BoxHandle {
    boxes.acquire(Acquire::kind("linux")).await.unwrap()
}

/// What is said in every exchange, without IDs.
async fn exchanges(machine: &BoxHandle) -> Vec<String> {
    let session = machine.session().unwrap();
    let mut said = Vec::new();
    for script in SCRIPTS {
        let result = session.run(&JobSpec::script(*script), Duration::from_secs(20)).await.unwrap();
        let RunResult::Ended(ended) = result else { panic!("{script:?} does not end") };
        said.push(format!("{script:?}: {} {:?} {:?}", ended.exit, ended.stdout, ended.stderr));
    }
    said.extend(about_a_job(&session).await);
    said.extend(about_copies(&session).await);
    said.extend(about_trees(&session).await);
    said.extend(about_streams(&session).await);
    said
}

async fn about_trees(session: &Session) -> Vec<String> {
    let here = tempfile::tempdir().unwrap();
    let (from, to) = (here.path().join("from"), here.path().join("to"));
    std::fs::create_dir_all(from.join("sub")).unwrap();
    let files = [("one", 30), ("sub/two", 5_000), ("three", 0)];
    for (name, len) in files {
        std::fs::write(from.join(name), vec![b'z'; len]).unwrap();
    }
    let none = session.copy_out("tree", &to, &|_, _| {}).await.unwrap_err();
    let mut said = vec![format!("no tree: {:?} {:?} {none}", none.kind(), none.effect_of())];
    // The second goes into the directory that the first made.
    for _ in 0..2 {
        said.push(format!("tree in: {:?}", session.copy_in(&from, "tree", &|_, _| {}).await.unwrap()));
    }
    said.push(format!("tree out: {:?}", session.copy_out("tree", &to, &|_, _| {}).await.unwrap()));
    for (name, len) in files {
        assert_eq!(std::fs::read(to.join(name)).unwrap().len(), len, "{name}");
    }
    said
}

async fn about_streams(session: &Session) -> Vec<String> {
    let mut said = Vec::new();
    for script in SCRIPTS {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit = session.stream(&JobSpec::script(*script), None, &mut out, &mut err).await.unwrap();
        said.push(format!("passes through {script:?}: {exit} {out:?} {err:?}"));
    }
    let job = session.start(&JobSpec::script("sleep 0.3;echo one;echo two >&2")).await.unwrap();
    for (stream, from) in [(Stream::Stdout, 0), (Stream::Stdout, 2), (Stream::Stderr, 0)] {
        let mut all = Vec::new();
        let until = session.follow(&job, stream, from, &mut all).await.unwrap();
        said.push(format!("follows from {from} to {until}: {all:?}"));
    }
    let nothing = JobId::parse("jbnothing00000").unwrap();
    let none = session.follow(&nothing, Stream::Stdout, 0, &mut Vec::new()).await.unwrap_err();
    said.push(format!("follows nothing: {:?}", none.kind()));
    said
}

async fn about_copies(session: &Session) -> Vec<String> {
    let here = tempfile::tempdir().unwrap();
    let (from, to) = (here.path().join("from"), here.path().join("to"));
    let mut said = Vec::new();
    let mut note = |what: &str, copied: bbbox::Result<Copied>| {
        said.push(match copied {
            Ok(copied) => format!("{what}: {copied:?}"),
            Err(error) => format!("{what}: {:?} {:?} {error}", error.kind(), error.effect_of()),
        });
    };
    note("nothing there", session.copy_out("file", &to, &|_, _| {}).await);
    for len in [0, 5_000, 300_000] {
        std::fs::write(&from, vec![b'y'; len]).unwrap();
        note("in", session.copy_in(&from, "file", &|_, _| {}).await);
        note("out", session.copy_out("file", &to, &|_, _| {}).await);
        assert_eq!(std::fs::read(&to).unwrap().len(), len);
    }
    note("in nowhere", session.copy_in(&from, "nowhere/file", &|_, _| {}).await);
    said
}

async fn about_a_job(session: &Session) -> Vec<String> {
    let nothing = JobId::parse("jbnothing00000").unwrap();
    let none = session.job(&nothing).await.unwrap_err();
    let id = JobId::parse("jbsleeper00000").unwrap();
    let sleeper = JobSpec::script("sleep 600").id(id.clone());
    let (job, again) = (session.start(&sleeper).await.unwrap(), session.start(&sleeper).await.unwrap());
    let mut said = vec![format!("no job: {:?}", none.kind()), format!("the same: {}", job == again)];
    said.push(format!("runs: {:?}", session.job(&id).await.unwrap() == JobState::Running));
    let listed = session.jobs().await.unwrap().into_iter().find(|(listed, _)| *listed == id);
    said.push(format!("listed: {:?}", listed.map(|(_, state)| state)));
    let waited = session.wait(&id, Duration::from_millis(100)).await.unwrap();
    said.push(format!("waited: {}", matches!(waited, RunResult::Running(_))));
    said.push(format!("ended: {:?}", session.signal(&id, Signal::Terminate).await.unwrap()));
    let ended = session.wait(&id, Duration::from_secs(20)).await.unwrap().ended();
    said.push(format!("how: {:?}", ended.map(|ended| ended.exit)));
    said.push(format!("again: {:?}", session.signal(&id, Signal::Terminate).await.unwrap()));
    session.remove(&id).await.unwrap();
    said.push(format!("removed: {:?}", session.job(&id).await.unwrap_err().kind()));
    said
}

#[test]
fn a_simulated_guest_says_what_a_real_one_says() {
    let real = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let real = real.block_on(async {
        let provider = Provider::new(Shape::default()).unwrap();
        let boxes = Boxes::builder().backend(provider.backend()).open().unwrap();
        let machine = acquired(&boxes).await;
        let said = exchanges(&machine).await;
        machine.release(true).await.unwrap();
        said
    });
    let mut schedule = generate::schedule(0);
    (schedule.weather, schedule.steps, schedule.deaths) = Default::default();
    let world = run::begin(&schedule);
    bbbox::simulation::play_alone(true);
    let model = life::runtime().block_on(async {
        let _alive = world.begin_life();
        let boxes = life::open(&world, 0, false).unwrap();
        let machine = acquired(&boxes).await;
        exchanges(&machine).await
    });
    assert_eq!(model, real);
}
