//! A command and what becomes of it: the plain data of this module.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::posix;
use crate::{
    error::{Error, Result},
    id::JobId,
    transport::Exit,
};

/// How much of a stream's beginning, and of its end, a result keeps: 16 KiB.
pub const KEPT: usize = 16 * 1024;
/// The longest script, 16 MiB: it passes through the memory of the box's shell.
pub const LONGEST_SCRIPT: usize = 16 * 1024 * 1024;

/// What to run.
#[derive(Clone, PartialEq, Eq)]
pub enum Command {
    /// A program and its arguments: bytes, none of them NUL.
    Argv(Vec<Vec<u8>>),
    /// A script for the box's shell. It goes as data: never in an argument, never in a file.
    Script(Vec<u8>),
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argv(argv) => write!(f, "Argv({} words)", argv.len()),
            Self::Script(script) => write!(f, "Script({} bytes)", script.len()),
        }
    }
}

/// A command with what it runs in.
#[derive(Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// The job's ID, when the caller chose it. The same ID said again is the same job, not a second one, for
    /// as long as the box keeps it: until the command after the one that fetched its whole result.
    pub id: Option<JobId>,
    /// What to run.
    pub command: Command,
    /// Where; relative to the user's home, which is the default.
    pub dir: Option<Vec<u8>>,
    /// What its environment has beyond the box's own. A value may be a secret: it is never in an argument, a
    /// file, a log or a debug text.
    pub env: BTreeMap<String, Vec<u8>>,
    /// Whether its stdin is a pipe that [`super::Session::feed`] fills. Otherwise it reads nothing.
    pub piped: bool,
}

impl JobSpec {
    /// A program and its arguments.
    pub fn argv<W: Into<Vec<u8>>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::of(Command::Argv(words.into_iter().map(Into::into).collect()))
    }

    /// A script for the box's shell.
    pub fn script(text: impl Into<Vec<u8>>) -> Self {
        Self::of(Command::Script(text.into()))
    }

    fn of(command: Command) -> Self {
        Self { id: None, command, dir: None, env: BTreeMap::new(), piped: false }
    }

    /// The same in another directory.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<Vec<u8>>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// The same with one more variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// The same under an ID that the caller chose.
    #[must_use]
    pub fn id(mut self, id: JobId) -> Self {
        self.id = Some(id);
        self
    }

    /// The same with a pipe as stdin.
    #[must_use]
    pub fn piped(mut self) -> Self {
        self.piped = true;
        self
    }
}

impl fmt::Debug for JobSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobSpec")
            .field("id", &self.id)
            .field("command", &self.command)
            .field("dir", &self.dir.as_deref().map(String::from_utf8_lossy))
            .field("env", &self.env.keys())
            .field("piped", &self.piped)
            .finish()
    }
}

/// A spec as the runner takes it: checked, and as shell text.
pub(super) struct Order {
    /// One line of shell text that ends in `go …`.
    pub(super) spec: Vec<u8>,
    /// A long script, which goes beside it.
    pub(super) body: Vec<u8>,
    pub(super) piped: bool,
}

/// A longer script goes through a pipe; a shorter one in a variable of the shell that runs it, which saves three
/// processes. Linux takes up to 128 KiB in one.
const SHORT_SCRIPT: usize = 64 * 1024;

impl Order {
    pub(super) fn new(spec: &JobSpec) -> Result<Self> {
        let mut order = Self { spec: Vec::new(), body: Vec::new(), piped: spec.piped };
        if let Some(dir) = &spec.dir {
            order.spec.extend_from_slice(b"CDPATH= cd -- ");
            posix::put_word_in_line(&mut order.spec, dir)?;
            order.spec.extend_from_slice(b" 2>/dev/null||bb_no ");
            posix::put_word_in_line(&mut order.spec, dir)?;
            order.spec.extend_from_slice(b" 'the box has no such directory that may be entered' 125;");
        }
        for (name, value) in &spec.env {
            order.export(name, value)?;
        }
        match &spec.command {
            Command::Argv(argv) => order.argv(argv)?,
            Command::Script(script) => order.script(script)?,
        }
        Ok(order)
    }

    fn export(&mut self, name: &str, value: &[u8]) -> Result<()> {
        if !posix::is_name(name) || name.starts_with("bb_") || name == "BB_JOB" {
            return Err(Error::invalid(format!("{name:?} cannot be the name of a variable here")).fix(
                "use a letter or _, then letters, digits and _; not BB_JOB and nothing that begins with bb_",
            ));
        }
        self.spec.extend_from_slice(b"export ");
        self.spec.extend_from_slice(name.as_bytes());
        self.spec.push(b'=');
        posix::put_word_in_line(&mut self.spec, value)?;
        self.spec.push(b';');
        Ok(())
    }

    fn argv(&mut self, argv: &[Vec<u8>]) -> Result<()> {
        if argv.first().is_none_or(Vec::is_empty) {
            return Err(Error::invalid("a command needs a program to run").fix("give it as the first word"));
        }
        self.spec.extend_from_slice(b"go");
        for word in argv {
            self.spec.push(b' ');
            posix::put_word_in_line(&mut self.spec, word)?;
        }
        Ok(())
    }

    fn script(&mut self, script: &[u8]) -> Result<()> {
        if script.contains(&0) {
            return Err(Error::invalid("a script cannot hold a NUL byte")
                .fix("copy it into the box as a file and run that"));
        }
        if script.len() > LONGEST_SCRIPT {
            return Err(Error::invalid(format!("a script of {} bytes is too long", script.len()))
                .fix("copy it into the box as a file and run that; up to 16 MiB go as they are"));
        }
        if script.len() > SHORT_SCRIPT {
            self.spec.extend_from_slice(b"go /bin/sh -c 'bb_s=$(cat <&9);exec 9<&-;eval \"$bb_s\"'");
            self.body = script.to_vec();
            return Ok(());
        }
        self.spec.extend_from_slice(b"export bb_s=");
        posix::put_word_in_line(&mut self.spec, script)?;
        self.spec.extend_from_slice(b";go /bin/sh -c 'set -- \"$bb_s\";unset bb_s;eval \"shift;$1\"'");
        Ok(())
    }
}

/// A signal that may be sent to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signal {
    /// HUP, to the job's process group.
    Hangup,
    /// INT, to the job's process group, as Ctrl-C does.
    Interrupt,
    /// QUIT, to the job's process group.
    Quit,
    /// USR1, to the job's main process.
    User1,
    /// USR2, to the job's main process.
    User2,
    /// TERM, to everything the job started.
    Terminate,
    /// KILL, to everything the job started.
    Kill,
}

impl Signal {
    pub(super) fn request(self) -> &'static str {
        match self {
            Self::Hangup => "HUP g",
            Self::Interrupt => "INT g",
            Self::Quit => "QUIT g",
            Self::User1 => "USR1 p",
            Self::User2 => "USR2 p",
            Self::Terminate => "TERM a",
            Self::Kill => "KILL a",
        }
    }
}

/// What sending a signal did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signalled {
    /// Something of the job's got it.
    Sent,
    /// Nothing of the job's runs any more.
    Ended,
    /// The box's user may not signal it, as when it became another user.
    NotAllowed,
}

/// One of a job's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
}

impl Stream {
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Stdout => "out",
            Self::Stderr => "err",
        }
    }
}

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It was asked for and has no process yet.
    Starting,
    /// Its main process runs.
    Running,
    /// Its main process ended. Where the box's shell is not bash and has no GNU `env`, a death by INT or PIPE
    /// shows as the code 130 or 141.
    Ended(Exit),
    /// It runs no more and nobody recorded how it ended: the box was restarted, or its supervisor was killed.
    Lost,
}

/// What a result keeps of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its beginning, up to [`KEPT`] bytes.
    pub head: Vec<u8>,
    /// Its end, up to [`KEPT`] bytes that the head does not hold.
    pub tail: Vec<u8>,
    /// How many bytes there are in all; [`super::Session::read`] reads any of them.
    pub total: u64,
}

impl Kept {
    /// How many bytes between head and tail are left out.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// All of it, when nothing is left out.
    #[must_use]
    pub fn whole(&self) -> Option<Vec<u8>> {
        (self.omitted() == 0).then(|| [&self.head[..], &self.tail[..]].concat())
    }

    pub(super) fn of_whole(mut bytes: Vec<u8>) -> Self {
        let total = bytes.len() as u64;
        let tail = if bytes.len() > KEPT { bytes.split_off(KEPT) } else { Vec::new() };
        Self { head: bytes, tail, total }
    }
}

/// A job that ended, with what it wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The job.
    pub job: JobId,
    /// How its main process ended.
    pub exit: Exit,
    /// What it wrote to its standard output.
    pub stdout: Kept,
    /// What it wrote to its standard error.
    pub stderr: Kept,
}

/// What became of a run within the time that its caller gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunResult {
    /// It ended.
    Ended(Ended),
    /// It runs on as this job.
    Running(JobId),
}

impl RunResult {
    /// The end, if there was one.
    #[must_use]
    pub fn ended(self) -> Option<Ended> {
        match self {
            Self::Ended(ended) => Some(ended),
            Self::Running(_) => None,
        }
    }
}
