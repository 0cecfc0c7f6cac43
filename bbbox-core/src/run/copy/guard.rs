//! The process in the box that a copy talks to.
//!
//! It gets its script and then lines and bytes on stdin. When its stdin ends early, it removes what it made: a
//! client that dies leaves nothing in the box.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::{IN_THE_WAY, list::Sum, put};
use crate::{
    env::Env,
    error::{Effect, Error},
    run::posix,
    transport::{Exit, Process, Sink, Source, Transport},
};

/// The longest line that is read, and how much of its errors is kept.
const LINE: usize = 64 * 1024;
const WORDS: usize = 4096;
/// How long it may take to clean up after a copy that failed.
const CLEANUP: Duration = Duration::from_secs(10);

/// What went wrong, and on which side: what the guard has to say tells more about its own.
pub(super) enum Fault {
    Here(Error),
    There(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Here(error)
    }
}

/// Contact broke, or it ended before it said what it should: why, its own words tell.
pub(super) fn cut(error: std::io::Error) -> Fault {
    Fault::There(lost("contact with the box was lost", error))
}

/// Contact broke, so that `what` happened.
pub(super) fn lost(what: &str, error: std::io::Error) -> Error {
    Error::unavailable(what).fix("look how the box is (`bbbox status BOX`), then copy again").because(error)
}

fn refused() -> Fault {
    Fault::There(Error::failed("the copy was refused"))
}

type Result<T, E = Fault> = std::result::Result<T, E>;

pub(super) struct Guard {
    stdin: Option<Sink>,
    stdout: Source,
    /// What was read beyond a line.
    seen: Vec<u8>,
    words: Option<tokio::task::JoinHandle<Vec<u8>>>,
    exit: Option<BoxFuture<'static, Result<Exit, Error>>>,
    kill: Option<BoxFuture<'static, Result<(), Error>>>,
    ended: Option<Exit>,
}

impl Guard {
    pub(super) async fn start(transport: &dyn Transport, script: &[u8]) -> Result<Self, Error> {
        let Process { mut stdin, stdout, mut stderr, exit, kill } =
            transport.spawn(&posix::loader(script.len())).await?;
        // A shell that refuses to start may close its stdin; what it says then tells more.
        let _ = put(&mut stdin, script).await;
        let words = tokio::spawn(async move {
            let mut words = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
                words.extend_from_slice(&buffer[..n]);
                let past = words.len().saturating_sub(WORDS);
                words.drain(..past);
            }
            words
        });
        Ok(Self {
            stdin: Some(stdin),
            stdout,
            seen: Vec::new(),
            words: Some(words),
            exit: Some(exit),
            kill: Some(kill),
            ended: None,
        })
    }

    /// One line, without its newline. `None` at the end.
    async fn line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.seen.iter().position(|b| *b == b'\n') {
                let rest = self.seen.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.seen, rest);
                line.pop();
                return Ok(Some(line));
            }
            if self.seen.len() > LINE {
                return Err(Error::failed("the box sent a line that is too long").into());
            }
            let read = self.stdout.read_buf(&mut self.seen).await;
            if read.map_err(|error| lost("contact with the box was lost", error))? == 0 {
                return Ok(None);
            }
        }
    }

    /// What it says when it is ready. A login's noise before that is passed over.
    pub(super) async fn ready(&mut self) -> Result<Vec<u8>> {
        while let Some(line) = self.line().await? {
            if let Some(at) = line.windows(6).position(|part| part == b"ready ") {
                return Ok(line[at + 6..].to_vec());
            }
        }
        Err(refused())
    }

    pub(super) async fn say(&mut self, line: &[u8]) -> Result<()> {
        match &mut self.stdin {
            Some(stdin) => put(stdin, line).await.map_err(cut),
            None => Ok(()),
        }
    }

    /// Whether it sees what was unpacked by other means.
    pub(super) async fn arrived(&mut self) -> Result<bool> {
        self.say(b"go\n").await?;
        // It says nothing more when it is there, but for the end; an early end is an error that `end` tells.
        Ok(match self.line().await? {
            Some(line) if line == b"absent" => false,
            Some(line) => {
                self.seen.splice(..0, line.into_iter().chain([b'\n']));
                true
            }
            None => true,
        })
    }

    /// Sends a stream and then the end of input.
    pub(super) async fn pump(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        count: &impl Fn(u64),
    ) -> Result<()> {
        let Some(mut stdin) = self.stdin.take() else { return Ok(()) };
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let n = match from.read(&mut buffer).await {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) => return Err(Error::failed("the copy was given up").because(error).into()),
            };
            stdin.write_all(&buffer[..n]).await.map_err(cut)?;
            count(n as u64);
        }
        let _ = stdin.shutdown().await;
        Ok(())
    }

    pub(super) fn stdout(&mut self) -> &mut Source {
        &mut self.stdout
    }

    /// From here on its stdout is a tar stream.
    pub(super) fn tar_started(&mut self) {
        self.seen.clear();
    }

    /// Waits for the word that everything is in place.
    pub(super) async fn end(&mut self) -> Result<()> {
        let said = self.line().await.map_err(unsure)?;
        self.stdin = None;
        let exit = self.exited().await.map_err(unsure)?;
        if said.as_deref() == Some(b"done") && exit.success() {
            return Ok(());
        }
        // It says what it refused by its code; else it was ended, and may have been at its end.
        Err(if matches!(exit, Exit::Code(3..=6)) { refused() } else { unsure(refused()) })
    }

    /// Has it check what arrived here: against `sum` for one file, by `list` for a directory.
    pub(super) async fn check(&mut self, list: Vec<u8>, sum: Option<Sum>) -> Result<()> {
        if sum.is_none() {
            self.say(b"list\n").await?;
            self.say(&list).await?;
        }
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.shutdown().await;
        }
        let mut nowhere = tokio::io::sink();
        // The end of a tar stream is padded; what is left of it must go somewhere.
        let _ = tokio::io::copy(&mut self.stdout, &mut nowhere).await;
        if !self.exited().await?.success() {
            return Err(refused());
        }
        let Some(sum) = sum else { return Ok(()) };
        let words = self.words().await;
        match words.lines().find_map(|line| line.strip_prefix("bb_sum ")) {
            Some(said) if said == sum.to_string() => Ok(()),
            Some(_) => Err(Fault::Here(
                Error::failed("the file is not the same in the box: it changed while it was copied")
                    .fix("copy it again"),
            )),
            None => Err(Fault::Here(Error::failed("the box could not sum the file").because_of(words))),
        }
    }

    async fn exited(&mut self) -> Result<Exit> {
        if let Some(exit) = &mut self.exit {
            let ended = exit.await;
            self.exit = None;
            self.ended = Some(ended.map_err(Fault::There)?);
        }
        self.ended.ok_or_else(refused)
    }

    async fn words(&mut self) -> String {
        match self.words.take() {
            Some(words) => String::from_utf8_lossy(&words.await.unwrap_or_default()).trim().to_owned(),
            None => String::new(),
        }
    }

    /// Ends it and gives the error with its words. It cleans up by itself once its input ends.
    pub(super) async fn failed(mut self, env: &dyn Env, fault: Fault, what: &str) -> Error {
        self.stdin = None;
        let ended = async {
            let mut nowhere = tokio::io::sink();
            let _ = tokio::io::copy(&mut self.stdout, &mut nowhere).await;
            self.exited().await.ok()
        };
        let exit = tokio::select! {
            biased;
            exit = ended => exit,
            () = env.sleep(CLEANUP) => None,
        };
        let error = match fault {
            Fault::Here(error) => return error,
            Fault::There(error) => error,
        };
        let Some(Exit::Code(code @ 1..)) = exit else {
            if let Some(kill) = self.kill.take() {
                let _ = kill.await;
            }
            #[cfg(feature = "simulation")]
            let error = if crate::simulation::is(crate::simulation::Bug::UnsureIsNone) {
                error.effect(Effect::None)
            } else {
                error
            };
            return error;
        };
        let words = self.words().await;
        let said = words.lines().last().unwrap_or("it did not say why").to_owned();
        // What it refused was not placed; of what failed while it was placed, some may be.
        let effect = if matches!(code, 3..=6) { Effect::None } else { error.effect_of() };
        said_by_the_box(code, what, said, words).effect(effect)
    }
}

/// What the script's end means: its code, and what it said, which may be a shell's own words.
fn said_by_the_box(code: u8, what: &str, said: String, words: String) -> Error {
    let is_barred = ["ermission denied", "can't cd to"].iter().any(|sign| said.contains(sign));
    match code {
        3 => Error::gone(said).fix("see what is there: `bbbox run BOX -- ls`"),
        4 if is_barred => Error::refused(format!("could not {what}: the box's user may not go there"))
            .because_of(words)
            .fix(BARRED),
        _ if is_barred => Error::failed(format!("could not {what}: {said}")).because_of(words).fix(BARRED),
        4 => Error::refused(said).fix(IN_THE_WAY),
        _ => Error::failed(format!("could not {what}: {said}")).because_of(words),
    }
}

/// What to do where the box's user may not read or write.
const BARRED: &str =
    "copy by way of the box's home folder, and move it there as root: `bbbox run BOX -- sudo cp FROM TO`";

/// After everything was sent, the box may have placed it although its word never came.
pub(super) fn unsure(fault: Fault) -> Fault {
    match fault {
        Fault::There(error) => Fault::There(error.effect(Effect::Unknown)),
        here => here,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shells_own_words_come_with_what_to_do() {
        for (code, said) in
            [(4, "sh: 20: cd: can't cd to /root"), (1, "cp: cannot open 'x': Permission denied")]
        {
            let error = said_by_the_box(code, "copy x", said.to_owned(), said.to_owned());
            assert!(error.to_string().starts_with("could not copy x: "), "{error}");
            assert!(error.how_to_fix().is_some_and(|fix| fix.contains("sudo")), "{error:?}");
        }
        let error = said_by_the_box(4, "copy x", "x is a directory".to_owned(), String::new());
        assert_eq!((error.to_string().as_str(), error.how_to_fix()), ("x is a directory", Some(IN_THE_WAY)));
    }
}
