//! Running another program with a time limit, its output kept in files.
//!
//! A child stays in this process's group, so an interrupt from the keyboard reaches it too. Past its limit the child
//! is asked to end, and a few seconds later it and everything it started is killed. Nothing is retried.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::fault::{Fault, Result};

/// How long a child has to end by itself once it was asked to.
const GRACE: Duration = Duration::from_secs(10);
/// How much of a failed child's output is shown.
const SHOWN: usize = 64 * 1024;

/// A program to run.
pub(crate) struct Child {
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    dir: Option<PathBuf>,
    limit: Duration,
}

/// What a child that succeeded said.
pub(crate) struct Said {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Child {
    pub(crate) fn new(program: impl Into<OsString>) -> Self {
        Self { argv: vec![program.into()], env: Vec::new(), dir: None, limit: Duration::from_secs(60) }
    }

    pub(crate) fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.argv.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().into()));
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.into());
        self
    }

    pub(crate) fn minutes(mut self, minutes: u64) -> Self {
        self.limit = Duration::from_secs(minutes * 60);
        self
    }

    #[cfg(test)]
    fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end and answers what it said. Its output also stays in `LOG.out` and `LOG.err`.
    pub(crate) fn run(&self, log: &Path) -> Result<Said> {
        let name = self.name();
        let files = [log.with_extension("out"), log.with_extension("err")];
        let [stdout, stderr] = [create(&files[0])?, create(&files[1])?];
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).envs(self.env.iter().map(|(k, v)| (k, v)));
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        let mut child = command.spawn().map_err(|e| Fault::new(format!("could not start {name}: {e}")))?;
        let pid = child.id();
        let (done, ended) = mpsc::channel();
        thread::spawn(move || done.send(child.wait()));
        let outcome = ended.recv_timeout(self.limit);
        let late = matches!(outcome, Err(RecvTimeoutError::Timeout));
        if late {
            end(pid, || ended.recv_timeout(GRACE).is_ok());
        }
        let [out, err] = files.map(|file| read(&file));
        let why = match outcome {
            Ok(Ok(status)) if status.success() => return Ok(Said { stdout: out?, stderr: err? }),
            Ok(Ok(status)) => format!("{name}: {status}"),
            Ok(Err(e)) => format!("could not wait for {name}: {e}"),
            Err(_) if late => format!("{name} was killed: it had not ended after {:?}", self.limit),
            Err(e) => format!("could not wait for {name}: {e}"),
        };
        let output = [tail(&err?), tail(&out?)].join("\n");
        Err(Fault { what: why, output: Some(output).filter(|text| !text.trim().is_empty()) })
    }

    /// Runs it and answers its output, or `None` when it failed or is not there. Nothing of it is kept.
    pub(crate) fn ask(&self) -> Option<String> {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.stdout(Stdio::piped()).spawn().ok()?;
        let pid = child.id();
        let (done, ended) = mpsc::channel();
        thread::spawn(move || done.send(child.wait_with_output()));
        let Ok(output) = ended.recv_timeout(self.limit) else {
            end(pid, || ended.recv_timeout(GRACE).is_ok());
            return None;
        };
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn name(&self) -> String {
        let words: Vec<_> = self.argv.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

/// The end of a long text, from the start of a line.
fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(SHOWN);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let rest = &text[from..];
    if from == 0 { rest } else { rest.split_once('\n').map_or(rest, |(_, rest)| rest) }
}

fn create(path: &Path) -> Result<File> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(|e| Fault::file("make", dir, e))?;
    }
    File::create(path).map_err(|e| Fault::file("write", path, e))
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).map_err(|e| Fault::file("read", path, e))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Asks a child to end, and kills it with all that it started when `ended` does not see it end.
fn end(pid: u32, ended: impl Fn() -> bool) {
    let family = descendants(pid);
    signal(pid, Signal::TERM);
    let alone = ended();
    for pid in family.into_iter().chain(descendants(pid)) {
        signal(pid, Signal::KILL);
    }
    if !alone {
        signal(pid, Signal::KILL);
        ended();
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended by itself, which is as good.
        let _ = kill_process(pid, signal);
    }
}

/// Every process below `pid`, as the kernel shows them now.
fn descendants(pid: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // The name stands in brackets and may hold anything; the state and the parent follow it.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parents.extend(parent.map(|parent: u32| (child, parent)));
    }
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(parents.iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| *child));
        next += 1;
    }
    found.split_off(1)
}

/// How long something took, as people read it.
pub(crate) fn took(since: Instant) -> String {
    let seconds = since.elapsed().as_secs_f64();
    if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{}:{:02} min", seconds as u64 / 60, seconds as u64 % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_past_its_limit_is_killed_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let script = "echo begun; setsid sleep 987 & echo $!; sleep 986; sleep 985";
        let child = Child::new("sh").args(["-c", script]).limit(Duration::from_millis(500));
        let fault = child.run(&dir.path().join("late")).err().unwrap();
        assert!(fault.what.contains("was killed"), "{}", fault.what);
        let output = fault.output.unwrap();
        let sleeper = output.split_once("begun").unwrap().1.trim().parse::<u32>().unwrap();
        // The kernel takes a moment to end what was killed.
        let begun = Instant::now();
        loop {
            let state = fs::read_to_string(format!("/proc/{sleeper}/stat")).unwrap_or_default();
            if state.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z')) {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "it still runs: {state}");
            thread::yield_now();
        }
    }

    #[test]
    fn a_failure_shows_both_streams() {
        let dir = tempfile::tempdir().unwrap();
        let child = Child::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]);
        let fault = child.run(&dir.path().join("failed")).err().unwrap();
        assert!(fault.what.ends_with("exit status: 3"), "{}", fault.what);
        assert_eq!(fault.output.as_deref(), Some("err\n\nout\n"));
    }

    #[test]
    fn a_long_output_is_shown_from_the_start_of_a_line() {
        let text = "é\n".repeat(SHOWN);
        let shown = tail(&text);
        assert!(shown.len() <= SHOWN && shown.starts_with('é') && text.ends_with(shown));
    }
}
