//! Commands and jobs through the core: what a program writes and how it ends comes back as it was.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use bbbox::{
    boxes::BoxHandle,
    id::JobId,
    run::{JobSpec, JobState, RunResult, Signal, Signalled, Stream},
    transport::Exit,
};
use futures::{StreamExt, TryStreamExt, stream};

use crate::{
    ability,
    case::{Case, Cost, Verdict, ensure, ensure_eq, failed},
    home::{Home, in_a_box, out, ran},
    lab::{Lab, noise, random},
};

const LIMIT: Duration = Duration::from_secs(180);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "every-exit-code-of-a-run-comes-back",
        promise: "a-runs-end-is-true",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(every_code(handle))),
    },
    Case {
        name: "a-runs-death-by-signal-comes-back",
        promise: "a-runs-end-is-true",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(every_signal(handle))),
    },
    Case {
        name: "a-run-returns-while-something-holds-its-output",
        promise: "a-runs-end-is-true",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(output_held(handle))),
    },
    Case {
        name: "a-run-that-closes-its-output-goes-on",
        promise: "a-runs-end-is-true",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(output_closed(handle))),
    },
    Case {
        name: "a-missing-command-is-127-with-the-words",
        promise: "a-runs-end-is-true",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(missing(handle))),
    },
    Case {
        name: "odd-words-and-bytes-reach-a-run-unharmed",
        promise: "a-runs-bytes-are-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(odd_words(handle))),
    },
    Case {
        name: "a-script-of-two-mebibytes-runs",
        promise: "a-runs-bytes-are-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(long_script(handle))),
    },
    Case {
        name: "a-runs-output-keeps-head-and-tail-and-is-readable-whole",
        promise: "a-runs-bytes-are-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(head_and_tail(handle))),
    },
    Case {
        name: "a-runs-streams-keep-their-order",
        promise: "a-runs-bytes-are-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(keep_their_order(handle))),
    },
    Case {
        name: "many-bytes-stream-through-a-run-both-ways",
        promise: "a-runs-bytes-are-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(both_ways(handle))),
    },
    Case {
        name: "fifty-runs-at-once-all-end-right",
        promise: "a-runs-end-is-true",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(fifty_at_once(handle))),
    },
    Case {
        name: "a-secret-stays-out-of-arguments-files-and-errors",
        promise: "a-secret-stays-secret",
        needs: ability::linux_sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(secret_stays_secret(lab)),
    },
    Case {
        name: "a-job-said-again-is-the-same-job",
        promise: "a-job-outlives-its-caller",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(same_job(handle))),
    },
    Case {
        name: "a-killed-job-ends-with-all-it-started",
        promise: "a-job-outlives-its-caller",
        needs: ability::linux_sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(killed_job(handle))),
    },
    Case {
        name: "the-end-of-a-job-whose-box-was-stopped-is-not-guessed",
        promise: "a-runs-end-is-true",
        needs: ability::sh_switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(lost_job(handle))),
    },
];

/// A variable's value is in no argument, no file, no debug text and, as the end of a run checks, no log.
async fn secret_stays_secret(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    let secret = lab.secret();
    let spec = JobSpec::script("echo begun; sleep 300").env("SECRET", secret.clone());
    ensure!(!format!("{spec:?}").contains(&secret), "it is in the debug text of a job");
    let length = JobSpec::script("printf %s \"$SECRET\" | wc -c").env("SECRET", secret.clone());
    let seen = ran(&handle, length).await?.stdout.whole().unwrap_or_default();
    ensure_eq!(String::from_utf8_lossy(&seen).trim(), secret.len().to_string(), "how long it is in the box");
    let job = handle.session()?.start(&spec).await?;
    let look = "cat /proc/[0-9]*/cmdline 2>/dev/null; find ~ -type f -exec cat {} + 2>/dev/null; true";
    let (mut all, mut none) = (Vec::new(), Vec::new());
    handle.session()?.stream(&JobSpec::script(look), None, &mut all, &mut none).await?;
    ensure!(!holds(&all, &secret), "it is in an argument or in a file of the box");
    let wrong = JobSpec::script("true").dir("no/such/dir").env("SECRET", secret.clone());
    ensure!(!format!("{:?}", handle.run(wrong).await).contains(&secret), "it is in an error");
    handle.session()?.signal(&job, Signal::Kill).await?;
    handle.release(true).await?;
    for file in std::fs::read_dir(home.folder())?.flatten().filter(|file| file.path().is_file()) {
        ensure!(!holds(&std::fs::read(file.path())?, &secret), "it is in {}", file.path().display());
    }
    Ok(())
}

fn holds(all: &[u8], word: &str) -> bool {
    all.windows(word.len()).any(|part| part == word.as_bytes())
}

async fn every_code(handle: BoxHandle) -> Verdict {
    let ends = stream::iter(0..=255_u8).map(|code| {
        let handle = &handle;
        async move {
            let ended = ran(handle, JobSpec::script(format!("exit {code}"))).await?;
            ensure_eq!(ended.exit, Exit::Code(code), "how exit {code} ended");
            Ok(())
        }
    });
    ends.buffer_unordered(8).try_collect::<Vec<()>>().await.map(drop)
}

async fn every_signal(handle: BoxHandle) -> Verdict {
    for (name, number) in [("HUP", 1), ("QUIT", 3), ("KILL", 9), ("USR1", 10), ("ALRM", 14), ("TERM", 15)] {
        let ended = ran(&handle, JobSpec::script(format!("kill -{name} $$; sleep 60"))).await?;
        ensure_eq!(ended.exit, Exit::Signal(number), "a death by {name}");
    }
    // A code that a shell would show for a signal is a code all the same.
    let ended = ran(&handle, JobSpec::script("exit 143")).await?;
    ensure_eq!(ended.exit, Exit::Code(143), "an exit with 143");
    Ok(())
}

async fn output_held(handle: BoxHandle) -> Verdict {
    let began = Instant::now();
    let ended = ran(&handle, JobSpec::script("echo out; sleep 60 & exit 3")).await?;
    ensure_eq!(ended.exit, Exit::Code(3), "how it ended");
    ensure_eq!(ended.stdout.whole().as_deref(), Some(&b"out\n"[..]), "what it wrote");
    ensure!(began.elapsed() < Duration::from_secs(10), "it returned after {:?}", began.elapsed());
    Ok(())
}

async fn output_closed(handle: BoxHandle) -> Verdict {
    let script = "echo out; exec >&- 2>&-; sleep 1; echo on >ran-on; exit 7";
    let ended = ran(&handle, JobSpec::script(script)).await?;
    ensure_eq!(ended.exit, Exit::Code(7), "how it ended");
    ensure_eq!(ended.stdout.whole().as_deref(), Some(&b"out\n"[..]), "what it wrote before");
    ensure_eq!(out(&handle, "cat ran-on").await?, "on", "what it did afterwards");
    Ok(())
}

async fn missing(handle: BoxHandle) -> Verdict {
    let ended = ran(&handle, JobSpec::argv(["no-such-command-anywhere", "argument"])).await?;
    ensure_eq!(ended.exit, Exit::Code(127), "how a missing command ended");
    let words = String::from_utf8_lossy(&ended.stderr.head).into_owned();
    ensure!(words.contains("no-such-command-anywhere"), "it does not say what is missing: {words:?}");
    Ok(())
}

async fn odd_words(handle: BoxHandle) -> Verdict {
    let words: [&[u8]; 12] = [
        b"",
        b" two  spaces ",
        b"tab\tnew\nline\r\n",
        b"'single' \"double\" `back`",
        b"$HOME ${HOME} $(id) $$ !! %s",
        b"back\\slash \\n",
        b"* ? [a] {b,c} ~ # ; & | < > ( )",
        b"-rf",
        "gr\u{fc}\u{df}e \u{4e16}\u{754c} \u{202e}".as_bytes(),
        b"\xff\xfe invalid \x80",
        b"\x01\x1b[31m\x7f\x04\x1a",
        b"a=b",
    ];
    let argv = [&b"printf"[..], b"%s\\0"].into_iter().chain(words).map(<[u8]>::to_vec);
    let right: Vec<u8> = words.iter().flat_map(|word| word.iter().copied().chain([0])).collect();
    let ended = ran(&handle, JobSpec::argv(argv)).await?;
    ensure_eq!(ended.stdout.whole(), Some(right), "the words");
    let many: Vec<Vec<u8>> = (0..300).map(|n| format!("word {n} of 'many' ${n}\n").into_bytes()).collect();
    let argv = [b"printf".to_vec(), b"%s".to_vec()].into_iter().chain(many.clone());
    ensure_eq!(ran(&handle, JobSpec::argv(argv)).await?.stdout.whole(), Some(many.concat()), "300 words");
    let odd = b"a 'name'\nwith $(signs) \xff".to_vec();
    let spec =
        JobSpec::script("mkdir -p \"$NAME\" && cd \"$NAME\" && basename \"$PWD\"").env("NAME", odd.clone());
    ensure_eq!(
        ran(&handle, spec).await?.stdout.whole(),
        Some([&odd[..], b"\n"].concat()),
        "a variable's value"
    );
    let spec = JobSpec::argv(["pwd"]).dir(odd.clone());
    let there = ran(&handle, spec).await?.stdout.whole().unwrap_or_default();
    ensure!(
        there.ends_with(&[&odd[..], b"\n"].concat()),
        "a directory's name: {}",
        String::from_utf8_lossy(&there)
    );
    Ok(())
}

async fn long_script(handle: BoxHandle) -> Verdict {
    let line = "# a comment of some length, as scripts that are made by programs have many of them\n";
    let mut script = line.repeat(2 * 1024 * 1024 / line.len());
    script.push_str("echo \"the end\"; exit 4\n");
    let ended = ran(&handle, JobSpec::script(script)).await?;
    ensure_eq!(ended.exit, Exit::Code(4), "how it ended");
    ensure_eq!(ended.stdout.whole().as_deref(), Some(&b"the end\n"[..]), "what it wrote");
    Ok(())
}

async fn head_and_tail(handle: BoxHandle) -> Verdict {
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done";
    let right: Vec<u8> = (0..20_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
    let ended = ran(&handle, JobSpec::script(script)).await?;
    let kept = &ended.stdout;
    ensure_eq!(kept.total, right.len() as u64, "how much it wrote");
    ensure!(right.starts_with(&kept.head) && right.ends_with(&kept.tail), "the head or the tail is another");
    ensure_eq!((kept.head.len(), kept.tail.len()), (16 * 1024, 16 * 1024), "how much of both is kept");
    ensure_eq!(kept.omitted(), kept.total - 32 * 1024, "how much is said to be left out");
    let session = handle.session()?;
    let (mut whole, mut total) = (Vec::new(), 1);
    while (whole.len() as u64) < total {
        let (part, of) = session.read(&ended.job, Stream::Stdout, whole.len() as u64, 50_000).await?;
        ensure!(!part.is_empty(), "a read at {} of {of} gave nothing", whole.len());
        (whole, total) = ([whole, part].concat(), of);
    }
    ensure!(whole == right, "the whole, read in parts, is another");
    Ok(())
}

async fn keep_their_order(handle: BoxHandle) -> Verdict {
    let script = "i=0; while [ $i -lt 3000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = handle.session()?.stream(&JobSpec::script(script), None, &mut out, &mut err).await?;
    ensure_eq!(exit, Exit::Code(0), "how it ended");
    let lines = |word: &str| (0..3000).map(|n| format!("{word} {n}\n")).collect::<String>().into_bytes();
    ensure!(out == lines("out"), "stdout is out of order or cut: {} bytes", out.len());
    ensure!(err == lines("err"), "stderr is out of order or cut: {} bytes", err.len());
    Ok(())
}

async fn both_ways(handle: BoxHandle) -> Verdict {
    let input = noise(random(), 48 * 1024 * 1024);
    let (mut from, mut out, mut err) = (&input[..], Vec::new(), Vec::new());
    let spec = JobSpec::script("cat; echo end >&2");
    let exit = handle.session()?.stream(&spec, Some(&mut from), &mut out, &mut err).await?;
    ensure_eq!(exit, Exit::Code(0), "how it ended");
    ensure!(out == input, "{} of {} bytes came back, or changed", out.len(), input.len());
    ensure_eq!(err, b"end\n", "what it wrote to stderr");
    Ok(())
}

async fn fifty_at_once(handle: BoxHandle) -> Verdict {
    let runs = (0..50_u8).map(|n| {
        let handle = &handle;
        async move {
            let ended = ran(handle, JobSpec::script(format!("echo {n}; exit {n}"))).await?;
            ensure_eq!(ended.exit, Exit::Code(n), "how run {n} ended");
            ensure_eq!(ended.stdout.whole(), Some(format!("{n}\n").into_bytes()), "what run {n} wrote");
            Ok(ended.job)
        }
    });
    let mut jobs = BTreeSet::new();
    for job in futures::future::join_all(runs).await {
        ensure!(jobs.insert(job?), "two runs were one job");
    }
    Ok(())
}

async fn same_job(handle: BoxHandle) -> Verdict {
    let session = handle.session()?;
    let spec = JobSpec::script("echo one >>count; sleep 0.3; cat count").id(JobId::draw(random));
    let (first, second) = tokio::join!(
        session.run(&spec, Duration::from_secs(60)),
        session.run(&spec, Duration::from_secs(60))
    );
    for answer in [first?, second?, session.run(&spec, Duration::from_secs(60)).await?] {
        let Some(ended) = answer.ended() else { return failed("the job does not end") };
        ensure_eq!(Some(&ended.job), spec.id.as_ref(), "the job's ID");
        ensure_eq!(ended.stdout.whole().as_deref(), Some(&b"one\n"[..]), "what it wrote");
    }
    Ok(())
}

async fn killed_job(handle: BoxHandle) -> Verdict {
    let session = handle.session()?;
    // One that left the job's group and hears no TERM.
    let script = "setsid sh -c 'trap \"\" TERM; echo $$ >one; sleep 300' & sleep 300 & echo $! >two; wait";
    let job = session.start(&JobSpec::script(script)).await?;
    out(&handle, "until [ -s one ] && [ -s two ]; do sleep 0.05; done").await?;
    ensure_eq!(session.job(&job).await?, JobState::Running, "how the job stands");
    ensure_eq!(session.signal(&job, Signal::Kill).await?, Signalled::Sent, "the kill");
    let Some(ended) = session.wait(&job, Duration::from_secs(60)).await?.ended() else {
        return failed("the killed job does not end");
    };
    ensure_eq!(ended.exit, Exit::Signal(9), "how it ended");
    let gone = "for f in one two; do while kill -0 $(cat $f) 2>/dev/null && ! grep -q '^State:.Z' /proc/$(cat $f)/status; \
        do sleep 0.05; done; done; echo gone";
    ensure_eq!(out(&handle, gone).await?, "gone", "what the job started");
    ensure_eq!(session.signal(&job, Signal::Kill).await?, Signalled::Ended, "a kill of a job that ended");
    ensure_eq!(session.job(&job).await?, JobState::Ended(Exit::Signal(9)), "how the job stands afterwards");
    Ok(())
}

async fn lost_job(handle: BoxHandle) -> Verdict {
    let session = handle.session()?;
    let job = session.start(&JobSpec::script("echo begun; sleep 300")).await?;
    // Launched is not begun: a stop at once may come before its first words.
    while session.read(&job, Stream::Stdout, 0, 100).await?.0.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    handle.stop(true).await?;
    handle.start().await?;
    let session = handle.session()?;
    // A stop that gives its commands a moment lets their end be recorded; one that does not leaves it unknown.
    match session.job(&job).await? {
        JobState::Lost => {
            let answer = session.wait(&job, Duration::from_secs(5)).await;
            ensure!(!matches!(answer, Ok(RunResult::Ended(_))), "its end was guessed: {answer:?}");
        }
        JobState::Ended(exit) => ensure!(!exit.success(), "its end was guessed: {exit}"),
        other => return failed(format!("it is {other:?} although its box was stopped under it")),
    }
    let (text, _) = session.read(&job, Stream::Stdout, 0, 100).await?;
    ensure_eq!(text, b"begun\n", "what it had written");
    Ok(())
}
