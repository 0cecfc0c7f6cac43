//! What a command gets, and what comes back.

use super::*;
use crate::{
    env::SystemEnv,
    error::{Error, ErrorKind, Result},
    id::{BoxId, JobId},
    kind::Shell,
    route::Route,
    transport::{Exit, Process, Transport, TransportTraits},
};

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
        for (spec, code, words) in [
            (JobSpec::argv(["no-such"]), 127, "no-such: there is no such program in the box\n"),
            (JobSpec::argv(["./no such"]), 127, "./no such: there is no such program in the box\n"),
            (JobSpec::argv(["/etc"]), 126, "/etc: the box may not execute this\n"),
            (JobSpec::argv(["/etc/passwd"]), 126, "/etc/passwd: the box may not execute this\n"),
            (
                JobSpec::script("true").dir("/no/such dir"),
                125,
                "/no/such dir: the box has no such directory that may be entered\n",
            ),
        ] {
            let out = ended(&session, spec).await;
            assert_eq!((out.exit, whole(&out.stderr)), (Exit::Code(code), words.as_bytes().to_vec()));
        }
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

/// A box whose shell is PowerShell; nothing is started in it.
struct Windows;

#[async_trait::async_trait]
impl Transport for Windows {
    fn traits(&self) -> TransportTraits {
        TransportTraits { shell: Shell::Powershell, admin: false, in_desktop_session: false, streaming: true }
    }

    async fn spawn(&self, argv: &[String]) -> Result<Process> {
        panic!("{argv:?} was started")
    }

    async fn probe(&self) -> Result<()> {
        Ok(())
    }

    async fn route(&self, _: u16) -> Result<Route> {
        Err(Error::refused("no ports"))
    }
}

#[tokio::test]
async fn a_box_without_a_posix_shell_says_so_whatever_is_asked() {
    let transport: Arc<dyn Transport> = Arc::new(Windows);
    let session = Runners::new(Arc::new(SystemEnv))
        .session(&BoxId::parse("bxtest00000000").unwrap(), Arc::new(transport));
    let (spec, here) = (JobSpec::script("true"), tempfile::tempdir().unwrap());
    let errors = [
        session.run(&spec, LONG).await.unwrap_err(),
        session.start(&spec).await.unwrap_err(),
        session.ready().await.unwrap_err(),
        session.jobs().await.unwrap_err(),
        session.stream(&spec, None, &mut tokio::io::sink(), &mut tokio::io::sink()).await.unwrap_err(),
        session.copy_in(here.path(), "there", &|_, _| ()).await.unwrap_err(),
        session.copy_out("there", here.path(), &|_, _| ()).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
        assert!(error.to_string().contains("PowerShell") && error.how_to_fix().is_some(), "{error:?}");
    }
}
