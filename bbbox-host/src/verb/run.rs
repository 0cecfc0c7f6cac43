//! `bbbox run`: a command in a box, as if it ran here: its output as it comes, its input, its exit code, its signals.

use std::{ffi::OsString, io::IsTerminal, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

use bbbox::{
    Error,
    env::{Env, SystemEnv},
    id::JobId,
    run::{DEFAULT_WAIT, JobSpec, RunResult, Session, Signal},
    transport::Exit,
};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    cli::Common,
    fault::{Ended, Fault, STILL_RUNS},
    folder, output,
    printer::Printer,
    variables,
};

/// Run a command in a box: its output, input, exit code and Ctrl-C are passed through
///
/// The command is a job of the box from the start: a second Ctrl-C, a lost connection or the end of --wait leaves it
/// running, and `bbbox job` finds it again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bbbox run dev -- cargo test\n  \
    tar c src | bbbox run dev -- tar x\n  \
    bbbox run dev -e GITHUB_TOKEN -- gh repo list    (its value from here, in no argument)\n  \
    bbbox run dev --script setup.sh\n  \
    bbbox run dev --detach -- ./server     (prints the job; see bbbox job)")]
pub(crate) struct Run {
    /// The box, by name or ID
    #[arg(value_name = "BOX")]
    name: String,
    /// Run this script with the box's sh instead of a command; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    script: Option<PathBuf>,
    /// Where to run it, from the home folder on
    #[arg(long, value_name = "PATH")]
    dir: Option<OsString>,
    /// A variable more in its environment; a NAME alone takes its value from here, and no argument shows it
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    env: Vec<OsString>,
    /// Variables from a file: NAME=VALUE or NAME a line, # before a remark; --env goes before them
    #[arg(long, value_name = "FILE")]
    env_file: Vec<PathBuf>,
    /// How many seconds to wait before it is left as a job, 1 to 2000000 [default: 270 with --json, else until it
    /// ends]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=2_000_000))]
    wait: Option<u64>,
    /// Leave it as a job at once and print the job's ID; it reads no input
    #[arg(long, conflicts_with = "wait")]
    detach: bool,
    /// The command and its arguments, each as it is
    #[arg(last = true, required_unless_present = "script", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The interpreter that a script's first line names, unless that is a plain sh.
fn interpreter(script: &[u8]) -> Option<String> {
    let line = script.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let line = String::from_utf8_lossy(line).trim().to_owned();
    let words: Vec<_> = line.split_whitespace().collect();
    let plain = match words.as_slice() {
        [] | ["/bin/sh" | "/usr/bin/sh"] => true,
        ["/usr/bin/env" | "/bin/env", name] => *name == "sh",
        _ => false,
    };
    (!plain).then_some(line)
}

impl Run {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Ended> {
        let spec = self.spec().map_err(Ended::in_run)?;
        let work = async {
            let boxes = folder::reading(common)?;
            let session = boxes.get(&self.name)?.session()?;
            let code = if self.detach {
                let job = session.start(&spec).await?;
                printer.answer(&serde_json::json!({ "job": job, "state": "running" }), || job.to_string())?;
                0
            } else if printer.json() {
                self.for_a_program(&session, spec, printer).await?
            } else {
                self.passed_through(&session, spec, printer).await?
            };
            Ok(code)
        };
        folder::block_on(async { folder::noted(common, &self.name, work.await).await }).map_err(Ended::in_run)
    }

    fn spec(&self) -> Result<JobSpec, Fault> {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let mut spec = match &self.script {
            Some(file) => {
                let script = super::read_bytes(file)?;
                if let Some(interpreter) = interpreter(&script) {
                    let name = super::file_name(file);
                    let words =
                        format!("{name} is for {interpreter}, and --script runs it with the box's sh");
                    return Err(Error::refused(words)
                        .fix(format!(
                            "copy it into the box and run it there: `bbbox copy FILE {0}:`, `bbbox run {0} -- ./FILE`",
                            self.name
                        ))
                        .into());
                }
                JobSpec::script(script)
            }
            None => JobSpec::argv(self.command.iter().map(|word| word.clone().into_vec())),
        };
        spec = spec.id(JobId::draw(|| SystemEnv.random()));
        if let Some(dir) = &self.dir {
            spec = spec.dir(dir.as_bytes());
        }
        let from_files =
            self.env_file.iter().map(|file| variables::of_file(file)).collect::<Result<Vec<_>, _>>()?;
        let named = self.env.iter().map(|word| variables::of_word(word)).collect::<Result<Vec<_>, _>>()?;
        for (name, value) in from_files.into_iter().flatten().chain(named) {
            spec = spec.env(name, value);
        }
        Ok(spec)
    }

    /// One object at the end.
    async fn for_a_program(
        &self,
        session: &Session,
        mut spec: JobSpec,
        printer: Printer,
    ) -> Result<u8, Fault> {
        let wait = self.wait.map_or(DEFAULT_WAIT, Duration::from_secs);
        let mut stdin = self.stdin();
        spec.piped = stdin.is_some();
        let job = spec.id.clone();
        let work = async {
            let Some(stdin) = &mut stdin else { return session.run(&spec, wait).await };
            let job = session.start(&spec).await?;
            let fed = async {
                match session.feed(&job, stdin).await {
                    Ok(_) => std::future::pending().await,
                    Err(error) => error,
                }
            };
            tokio::select! {
                biased;
                ended = session.wait(&job, wait) => ended,
                error = fed => Err(error),
            }
        };
        let result = tokio::select! {
            biased;
            result = work => result?,
            () = pass_signals(session, job.as_ref(), printer) => match job.clone() {
                Some(job) => RunResult::Running(job),
                None => return Err(Error::cancelled("it was interrupted").into()),
            },
        };
        printer.answer(&output::result(&result), String::new)?;
        Ok(match result {
            RunResult::Ended(ended) => {
                // What the result leaves out can be read in the box.
                if ended.stdout.omitted() == 0 && ended.stderr.omitted() == 0 {
                    discard(session, &ended.job).await;
                }
                ended.exit.shell_status()
            }
            RunResult::Running(_) => STILL_RUNS,
        })
    }

    /// As if it ran here.
    async fn passed_through(&self, session: &Session, spec: JobSpec, printer: Printer) -> Result<u8, Fault> {
        let mut stdin = self.stdin();
        let (mut out, mut err) = printer.streams();
        let job = spec.id.clone();
        let work = session.stream(
            &spec,
            stdin.as_mut().map(|stdin| stdin as &mut (dyn tokio::io::AsyncRead + Send + Unpin)),
            &mut out,
            &mut err,
        );
        let limit = async {
            match self.wait {
                Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                None => std::future::pending().await,
            }
        };
        let exit = tokio::select! {
            biased;
            exit = work => exit,
            () = limit => return Ok(self.left(job.as_ref(), printer)),
            () = pass_signals(session, job.as_ref(), printer) => return Ok(self.left(job.as_ref(), printer)),
        };
        match exit {
            Ok(exit) => {
                if let Some(job) = &job {
                    discard(session, job).await;
                }
                Ok(Exit::shell_status(exit))
            }
            Err(error) if Fault::is_broken_pipe(&error) => {
                // Nobody reads any more: the command is told so, as a pipe here would tell it, and what it wrote goes.
                if let Some(job) = &job {
                    drop(session.signal(job, Signal::Hangup).await);
                    if let Ok(RunResult::Ended(_)) = session.wait(job, Duration::from_secs(2)).await {
                        discard(session, job).await;
                    }
                }
                Err(Fault::Unread)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn left(&self, job: Option<&JobId>, printer: Printer) -> u8 {
        if let Some(job) = job {
            printer.note(&format!("it goes on as a job: bbbox job wait {} {job}", self.name));
        }
        STILL_RUNS
    }

    /// This program's stdin, where there is something to read: a script from stdin has read it.
    fn stdin(&self) -> Option<tokio::io::Stdin> {
        let is_script = self.script.as_deref().is_some_and(|file| file.as_os_str() == "-");
        let null = || {
            let device = |path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.rdev()));
            device("/dev/stdin").is_none() || device("/dev/stdin") == device("/dev/null")
        };
        (!is_script && (std::io::stdin().is_terminal() || !null())).then(tokio::io::stdin)
    }
}

/// Removes a job whose whole output was passed on. Where that fails it stays until it is a week old.
async fn discard(session: &Session, job: &JobId) {
    if let Err(error) = session.discard(job).await {
        tracing::debug!(%job, error = error.chain(), "a job that was passed on stays in the box");
    }
}

/// Passes the signals that end programs on to the command. Returns at a second Ctrl-C: then it is left alone.
async fn pass_signals(session: &Session, job: Option<&JobId>, printer: Printer) {
    let of = |kind| signal(kind).ok();
    let (Some(mut interrupt), Some(mut terminate), Some(mut quit)) =
        (of(SignalKind::interrupt()), of(SignalKind::terminate()), of(SignalKind::quit()))
    else {
        return std::future::pending().await;
    };
    let mut interrupted = false;
    loop {
        let pass = tokio::select! {
            _ = interrupt.recv() => {
                if interrupted {
                    return;
                }
                interrupted = true;
                Signal::Interrupt
            }
            _ = terminate.recv() => Signal::Terminate,
            _ = quit.recv() => Signal::Quit,
        };
        let Some(job) = job else { return };
        // A second Ctrl-C counts also while the first is on its way.
        let sent = tokio::select! {
            sent = session.signal(job, pass) => sent,
            _ = interrupt.recv(), if interrupted => return,
        };
        if let Err(error) = sent {
            printer.note(&format!("the command was not told: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_for_another_interpreter_is_known_by_its_first_line() {
        for plain in ["echo", "#!/bin/sh\necho", "#! /bin/sh", "#!/usr/bin/env sh\r\necho", "#!"] {
            assert_eq!(interpreter(plain.as_bytes()), None, "{plain:?}");
        }
        for other in ["#!/usr/bin/env python3\nprint()", "#!/bin/bash\n", "#!/bin/sh -e\n"] {
            assert!(interpreter(other.as_bytes()).is_some(), "{other:?}");
        }
    }
}
