//! Output as it is written, input while it is read.

use super::*;
use crate::{error::ErrorKind, transport::Exit};

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
            assert!(end == 200_002 && out == b"ab\n", "{} bytes, to {end}", out.len());
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

/// Whoever claimed its ID died before it had a process.
#[tokio::test]
async fn a_job_that_was_claimed_and_never_launched_is_lost_after_a_minute() {
    let local = Local::new(SHELLS[0]);
    let session = local.session();
    session.ready().await.unwrap();
    let job = crate::id::JobId::parse("jbclaimed00000").unwrap();
    let dir = local.home.path().join(".local/state/bb-box/jobs").join(job.as_str());
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("rc"), "-                   \n").unwrap();
    assert_eq!(session.job(&job).await.unwrap(), JobState::Starting);
    let then = std::time::SystemTime::now() - Duration::from_secs(180);
    std::fs::File::options().write(true).open(dir.join("rc")).unwrap().set_modified(then).unwrap();
    assert_eq!(session.job(&job).await.unwrap(), JobState::Lost);
    session.remove(&job).await.unwrap();
    assert_eq!(session.job(&job).await.unwrap_err().kind(), ErrorKind::Gone);
}
