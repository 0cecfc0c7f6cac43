//! What ends a verb early, how it is said once, and the exit codes: one table, which the help and the docs show.

use std::{fmt::Write, io};

use bbbox::{Effect, Error, ErrorKind, config::Problems};
use serde_json::{Value, json};

use crate::printer::lines;

/// Why a verb ended early.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The library said no.
    Error(Error),
    /// A document has problems.
    Problems {
        /// Where the document came from.
        source: String,
        /// What is wrong in it.
        problems: Problems,
    },
    /// Nobody reads stdout any more: there is nobody to tell.
    Unread,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// A fault with the exit code that it ends the program with.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) fault: Fault,
    pub(crate) code: u8,
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self { code: fault.exit_code(), fault }
    }
}

impl Ended {
    /// As `run` ends: no code of bbbox's own may look like the command's.
    pub(crate) fn in_run(fault: Fault) -> Self {
        let code = if matches!(fault, Fault::Unread) { fault.exit_code() } else { RUN_FAILED };
        Self { fault, code }
    }
}

/// The exit codes, in the order in which the help shows them.
pub(crate) const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "It is done"),
    ("1", "It was tried and went wrong"),
    ("2", "The input is wrong: arguments, a size, a configuration"),
    ("3", "What was named is not there (any more)"),
    ("4", "Nothing has room now"),
    ("5", "A backend or a box does not answer now; try again"),
    ("6", "It is in use, or was changed by someone else"),
    ("7", "A rule forbids it; the words say which"),
    ("8", "It is not yours"),
    ("9", "It was cancelled"),
    ("run, job wait", "The command's own code; 128 and the number of the signal that ended it;"),
    ("124", "  the command still runs, as a job;"),
    ("125", "  bbbox itself failed, before or while the command ran"),
];

/// The exit code of a command that goes on as a job.
pub(crate) const STILL_RUNS: u8 = 124;
/// The exit code of `run` when bbbox itself failed.
pub(crate) const RUN_FAILED: u8 = 125;

impl Fault {
    /// A fault of writing to stdout.
    pub(crate) fn stdout(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::Unread
        } else {
            let fix = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space where it goes",
                _ => "check where it goes",
            };
            Error::failed("could not write to stdout").fix(fix).because(error).into()
        }
    }

    /// A fault of making JSON.
    pub(crate) fn json(error: serde_json::Error) -> Self {
        Error::failed("could not write the answer as JSON").because(error).into()
    }

    /// A fault of reading or writing the file `path`.
    pub(crate) fn file(doing: &str, path: &str, error: io::Error) -> Self {
        let what = format!("could not {doing} {path}");
        let made = match error.kind() {
            io::ErrorKind::NotFound => Error::gone(what).fix("name a file that is there"),
            io::ErrorKind::PermissionDenied => {
                Error::new(ErrorKind::Denied, what).fix("make it one that you may use")
            }
            io::ErrorKind::IsADirectory => Error::failed(what).fix("name a file: this is a folder"),
            _ => Error::failed(what),
        };
        made.because(error).into()
    }

    /// Whether an error comes of writing where nobody reads.
    pub(crate) fn is_broken_pipe(error: &Error) -> bool {
        let mut next = std::error::Error::source(error);
        while let Some(cause) = next {
            if cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
                return true;
            }
            next = cause.source();
        }
        false
    }

    /// The exit code of every verb but `run`.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Problems { .. } => 2,
            // As a shell shows a program that SIGPIPE ended.
            Self::Unread => 141,
            Self::Error(error) => match error.kind() {
                ErrorKind::Invalid => 2,
                ErrorKind::Gone => 3,
                ErrorKind::NoCapacity => 4,
                ErrorKind::Unavailable => 5,
                ErrorKind::Busy => 6,
                ErrorKind::Refused => 7,
                ErrorKind::Denied => 8,
                ErrorKind::Cancelled => 9,
                _ => 1,
            },
        }
    }

    /// In one line: what and why.
    pub(crate) fn one_line(&self) -> String {
        match self {
            Self::Unread => "nobody reads stdout".to_owned(),
            Self::Problems { source, problems } => format!("{source}: {problems}"),
            Self::Error(error) => error.chain(),
        }
    }

    /// For a person: what, why, and what to do.
    pub(crate) fn to_text(&self) -> String {
        let (red, cyan, off) = ("\u{1b}[1;31m", "\u{1b}[36m", "\u{1b}[0m");
        match self {
            Self::Unread => String::new(),
            Self::Problems { source, problems } => {
                let mut text = String::new();
                for problem in problems.iter() {
                    let _ = writeln!(text, "{red}error:{off} {source}: {}", lines(&problem.to_string()));
                }
                text
            }
            Self::Error(error) => {
                let mut text = format!("{red}error:{off} {}\n", lines(&error.to_string()));
                for cause in causes(error) {
                    let _ = writeln!(text, "  because: {}", lines(&cause).replace('\n', "\n           "));
                }
                let around: Vec<_> =
                    error.context().iter().map(|(name, value)| format!("{name} {value}")).collect();
                if !around.is_empty() {
                    let _ = writeln!(text, "  at: {}", lines(&around.join(", ")));
                }
                if error.effect_of() == Effect::Unknown {
                    let _ = writeln!(text, "  it may have happened all the same: look before you try again");
                }
                if let Some(fix) = error.how_to_fix() {
                    let _ = writeln!(text, "{cyan}  fix:{off} {}", lines(fix));
                }
                text
            }
        }
    }

    /// For a program: one object.
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Unread => json!({ "error": { "kind": "cancelled", "message": "nobody reads stdout" } }),
            Self::Problems { source, problems } => json!({ "error": {
                "kind": ErrorKind::Invalid.as_str(),
                "message": format!("{source} is not a configuration"),
                "problems": problems,
            } }),
            Self::Error(error) => {
                let context: serde_json::Map<_, _> = error
                    .context()
                    .iter()
                    .map(|(name, value)| (name.clone(), value.clone().into()))
                    .collect();
                json!({ "error": {
                    "kind": error.kind().as_str(),
                    "effect": error.effect_of(),
                    "message": error.to_string(),
                    "causes": causes(error),
                    "context": context,
                    "fix": error.how_to_fix(),
                } })
            }
        }
    }
}

/// Each cause's words, once: one that a message ends with is said by it.
fn causes(error: &Error) -> Vec<String> {
    let mut said = vec![error.to_string()];
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let words = cause.to_string();
        if !said.last().is_some_and(|before| before.ends_with(&words)) {
            said.push(words);
        }
        next = cause.source();
    }
    said.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Fault {
        Error::unavailable("could not start box dev")
            .effect(Effect::Unknown)
            .fix("start the engine")
            .at("backend", "local")
            .because(io::Error::other("dial /x.sock: connection refused\nsecond line"))
            .into()
    }

    #[test]
    fn a_person_reads_what_why_where_and_what_to_do() {
        let plain = anstream::adapter::strip_str(&sample().to_text()).to_string();
        insta::assert_snapshot!(plain, @r"
        error: could not start box dev
          because: dial /x.sock: connection refused
                   second line
          at: backend local
          it may have happened all the same: look before you try again
          fix: start the engine
        ");
    }

    #[test]
    fn a_program_reads_one_object() {
        let value = sample().to_json();
        assert_eq!(value["error"]["kind"], "unavailable");
        assert_eq!(value["error"]["effect"], "unknown");
        assert_eq!(value["error"]["context"]["backend"], "local");
        assert_eq!(value["error"]["causes"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn each_kind_has_a_code_of_its_own_that_the_table_names() {
        let kinds = [
            ErrorKind::Failed,
            ErrorKind::Invalid,
            ErrorKind::Gone,
            ErrorKind::NoCapacity,
            ErrorKind::Unavailable,
            ErrorKind::Busy,
            ErrorKind::Refused,
            ErrorKind::Denied,
            ErrorKind::Cancelled,
        ];
        for (n, kind) in kinds.into_iter().enumerate() {
            let code = Fault::from(Error::new(kind, "x")).exit_code();
            assert_eq!(usize::from(code), n + 1);
            assert!(EXIT_CODES.iter().any(|(row, _)| *row == code.to_string()));
        }
    }
}
