//! `bbbox job`: commands that go on in a box after whoever started them is gone.

use std::time::Duration;

use bbbox::{
    id::JobId,
    run::{JobState, RunResult, Session, Signal, Signalled, Stream},
};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::{
    cli::Common,
    fault::{Ended, Fault, STILL_RUNS},
    folder, output,
    printer::{Printer, table},
    words,
};

/// Look at a box's jobs: list them, read what they wrote, wait for one, signal one, remove one
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bbbox job list dev\n  \
    bbbox job read dev jb0123456789ab --follow\n  \
    bbbox job wait dev jb0123456789ab      (exits as the command did)\n  \
    bbbox job signal dev jb0123456789ab terminate")]
pub(crate) struct Job {
    #[command(subcommand)]
    doing: Doing,
}

#[derive(Debug, Subcommand)]
enum Doing {
    /// List the jobs that a box keeps
    #[command(after_help = "Example:\n  bbbox job list dev")]
    List(Named),
    /// Print what a job wrote, as it is
    #[command(after_help = "Example:\n  bbbox job read dev jb0123456789ab --follow")]
    Read(Read),
    /// Wait for a job's end and exit as it did
    #[command(after_help = "Example:\n  bbbox job wait dev jb0123456789ab   (exits as the command did)")]
    Wait(Wait),
    /// Send a signal to a job
    #[command(after_help = "Example:\n  bbbox job signal dev jb0123456789ab terminate")]
    Signal(Send),
    /// Remove a job that ended, with what it wrote
    #[command(after_help = "Example:\n  bbbox job remove dev jb0123456789ab")]
    Remove(One),
}

#[derive(Debug, Args)]
struct Named {
    /// The box, by name or ID
    #[arg(value_name = "BOX")]
    name: String,
}

#[derive(Debug, Args)]
struct One {
    #[command(flatten)]
    named: Named,
    /// The job's ID
    #[arg(value_parser = |t: &str| JobId::parse(t).map_err(words::spoken))]
    job: JobId,
}

#[derive(Debug, Args)]
struct Read {
    #[command(flatten)]
    one: One,
    /// What it wrote to its standard error instead
    #[arg(long)]
    stderr: bool,
    /// From this byte on
    #[arg(long, default_value_t = 0, value_name = "BYTE")]
    offset: u64,
    /// Go on until the job ends
    #[arg(long, conflicts_with = "json")]
    follow: bool,
}

#[derive(Debug, Args)]
struct Wait {
    #[command(flatten)]
    one: One,
    /// For so many seconds at most, up to 2000000; 0 only looks
    #[arg(long, value_name = "SECONDS", default_value_t = 270, value_parser = clap::value_parser!(u64).range(..=2_000_000))]
    wait: u64,
}

#[derive(Debug, Args)]
struct Send {
    #[command(flatten)]
    one: One,
    /// Terminate and kill reach everything the job started
    signal: Word,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Word {
    Terminate,
    Kill,
    Interrupt,
    Hangup,
    Quit,
    User1,
    User2,
}

impl From<Word> for Signal {
    fn from(word: Word) -> Self {
        match word {
            Word::Terminate => Self::Terminate,
            Word::Kill => Self::Kill,
            Word::Interrupt => Self::Interrupt,
            Word::Hangup => Self::Hangup,
            Word::Quit => Self::Quit,
            Word::User1 => Self::User1,
            Word::User2 => Self::User2,
        }
    }
}

impl Job {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Ended> {
        let named = match &self.doing {
            Doing::List(named) => named,
            Doing::Read(read) => &read.one.named,
            Doing::Wait(wait) => &wait.one.named,
            Doing::Signal(send) => &send.one.named,
            Doing::Remove(one) => &one.named,
        };
        let work = async {
            let session = folder::reading(common)?.get(&named.name)?.session()?;
            match &self.doing {
                Doing::List(_) => list(&session, printer).await,
                Doing::Read(read) => self::read(&session, read, printer).await,
                Doing::Wait(wait) => self::wait(&session, wait, printer).await,
                Doing::Signal(send) => signal(&session, send, printer).await,
                Doing::Remove(one) => {
                    session.remove(&one.job).await?;
                    printer.answer(&json!({ "job": one.job }), || format!("{} is removed", one.job))?;
                    Ok(0)
                }
            }
        };
        let done = folder::block_on(async { folder::noted(common, &named.name, work.await).await });
        // Only a wait ends as the command did; its own failures must not look like the command's.
        let as_run = matches!(self.doing, Doing::Wait(_));
        done.map_err(|fault| if as_run { Ended::in_run(fault) } else { Ended::from(fault) })
    }
}

async fn list(session: &Session, printer: Printer) -> Result<u8, Fault> {
    let mut jobs = session.jobs().await?;
    jobs.sort_by(|(a, _), (b, _)| a.cmp(b));
    let value: Vec<_> = jobs.iter().map(|(job, state)| state_of(job, *state)).collect();
    printer.answer(&value, || {
        if jobs.is_empty() {
            return "The box keeps no jobs".to_owned();
        }
        table(["JOB", "STATE"], jobs.iter().map(|(job, state)| [job.to_string(), told(*state)]))
    })?;
    Ok(0)
}

fn state_of(job: &JobId, state: JobState) -> serde_json::Value {
    match state {
        JobState::Ended(exit) => json!({ "job": job, "state": "ended", "exit": exit }),
        JobState::Starting | JobState::Running => json!({ "job": job, "state": "running" }),
        JobState::Lost => json!({ "job": job, "state": "lost" }),
    }
}

fn told(state: JobState) -> String {
    match state {
        JobState::Ended(exit) => format!("ended: {exit}"),
        JobState::Starting | JobState::Running => "running".to_owned(),
        JobState::Lost => "lost: it runs no more, and how it ended was not recorded".to_owned(),
    }
}

async fn read(session: &Session, read: &Read, printer: Printer) -> Result<u8, Fault> {
    let stream = if read.stderr { Stream::Stderr } else { Stream::Stdout };
    let job = &read.one.job;
    if read.follow {
        let (mut out, _) = printer.streams();
        return match session.follow(job, stream, read.offset, &mut out).await {
            Ok(_) => Ok(0),
            Err(error) if Fault::is_broken_pipe(&error) => Err(Fault::Unread),
            Err(error) => Err(error.into()),
        };
    }
    if printer.json() {
        // A piece that fits a program's memory; the next one begins at `next`.
        let (bytes, total) = session.read(job, stream, read.offset, 1 << 20).await?;
        let mut value = output::bytes(&bytes);
        value["offset"] = read.offset.into();
        value["next"] = (read.offset + bytes.len() as u64).into();
        value["total"] = total.into();
        printer.answer(&value, String::new)?;
        return Ok(0);
    }
    let mut offset = read.offset;
    loop {
        let (bytes, _) = session.read(job, stream, offset, 256 << 10).await?;
        if bytes.is_empty() {
            return Ok(0);
        }
        offset += bytes.len() as u64;
        printer.data(&bytes)?;
    }
}

async fn wait(session: &Session, wait: &Wait, printer: Printer) -> Result<u8, Fault> {
    let result = session.wait(&wait.one.job, Duration::from_secs(wait.wait)).await?;
    printer.answer(&output::result(&result), || match &result {
        RunResult::Ended(ended) => format!("{} ended: {}", ended.job, ended.exit),
        RunResult::Running(job) => format!("{job} still runs"),
    })?;
    Ok(match result {
        RunResult::Ended(ended) => ended.exit.shell_status(),
        RunResult::Running(_) => STILL_RUNS,
    })
}

async fn signal(session: &Session, send: &Send, printer: Printer) -> Result<u8, Fault> {
    let done = session.signal(&send.one.job, send.signal.into()).await?;
    printer.answer(&json!({ "job": send.one.job, "signalled": done }), || {
        match done {
            Signalled::Sent => "sent",
            Signalled::Ended => "nothing of the job runs any more",
            Signalled::NotAllowed => "the box's user may not signal it",
        }
        .to_owned()
    })?;
    Ok(u8::from(done == Signalled::NotAllowed))
}
