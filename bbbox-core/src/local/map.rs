//! The backend's own records and `/proc`'s lines, as the core's types and back. Calls nothing.

use std::{collections::BTreeMap, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    guest::{Guest, Held, Owner},
    size::Size,
};

/// How a guest is kept apart from the machine. Fixed when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    /// In namespaces that root makes.
    Root,
    /// In namespaces below a user namespace, which any user may make where the machine allows it.
    User,
    /// Not at all.
    None,
}

impl Mode {
    /// The word for it that the keeper's script and the guest's record use.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user",
            Self::None => "none",
        }
    }

    /// What people read about it.
    pub(super) const fn fact(self) -> &'static str {
        match self {
            Self::Root | Self::User => {
                "namespaces on this machine, its network shared; not for untrusted code"
            }
            Self::None => "no isolation: commands run on this machine as bb-box's own user",
        }
    }
}

/// A guest as its folder records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) owner: Owner,
    pub(super) size: Size,
    pub(super) mode: Mode,
}

impl Record {
    pub(super) fn guest(&self) -> Guest {
        Guest {
            install: self.owner.install.clone(),
            box_id: self.owner.box_id.clone(),
            reference: self.owner.box_id.to_string(),
            host: None,
            address: None,
            size: self.size,
            data: BTreeMap::new(),
            facts: BTreeMap::from([("isolation".to_owned(), self.mode.fact().to_owned())]),
        }
    }

    pub(super) fn held(&self) -> Held {
        Held { owner: self.owner.clone(), guest: self.guest() }
    }
}

/// A guest's first process as it recorded itself. Only pid, start time and boot together are an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keeper {
    pub(super) pid: i32,
    /// Clock ticks from the machine's start to the process's.
    pub(super) start: u64,
    /// The machine's start.
    pub(super) boot: String,
    pub(super) stage: Stage,
}

/// How far a guest's first process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It sets the box up.
    Setup,
    /// The box is set up.
    Ready,
    /// Someone is ending it, or began to and did not come to it.
    Ending,
}

impl FromStr for Keeper {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        // A line that lacks its end is still being written.
        let (line, rest) = text.split_once('\n').ok_or(())?;
        let mut words = line.split(' ');
        let mut next = || words.next().ok_or(());
        let pid = next()?.parse().ok().filter(|pid| *pid > 0).ok_or(())?;
        let start = next()?.parse().map_err(|_| ())?;
        let stage = match rest {
            "" => Stage::Setup,
            "ready\n" => Stage::Ready,
            _ => Stage::Ending,
        };
        Ok(Self { pid, start, boot: next()?.to_owned(), stage })
    }
}

/// What `/proc/<pid>/stat` says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: i32,
    /// Whether it has ended and waits to be collected.
    pub(super) ended: bool,
    pub(super) session: i32,
    pub(super) start: u64,
}

impl FromStr for Stat {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        // The name, in brackets, may itself hold spaces and brackets.
        let (pid, rest) = text.split_once(' ').ok_or(())?;
        let (_, rest) = rest.rsplit_once(')').ok_or(())?;
        let words: Vec<_> = rest.split_ascii_whitespace().collect();
        let word = |n: usize| words.get(n - 3).copied().ok_or(());
        Ok(Self {
            pid: pid.parse().map_err(|_| ())?,
            ended: matches!(word(3)?, "Z" | "X"),
            session: word(6)?.parse().map_err(|_| ())?,
            start: word(22)?.parse().map_err(|_| ())?,
        })
    }
}

/// This machine's memory in MiB, from `/proc/meminfo`.
pub(super) fn memory_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib / 1024)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_process_with_an_odd_name_is_read() {
        let text = "42 (a) b) (c) S 1 42 40 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 987 1 1";
        assert_eq!(text.parse(), Ok(Stat { pid: 42, ended: false, session: 40, start: 987 }));
    }

    #[test]
    fn a_keeper_counts_once_its_line_is_whole() {
        let keeper = |stage| Keeper { pid: 7, start: 9, boot: "b".into(), stage };
        assert_eq!("7 9 b\n".parse(), Ok(keeper(Stage::Setup)));
        assert_eq!("7 9 b\nready\n".parse(), Ok(keeper(Stage::Ready)));
        for ending in ["ending\n", "ready\nending\n", "ending\nready\n"] {
            assert_eq!(format!("7 9 b\n{ending}").parse(), Ok(keeper(Stage::Ending)));
        }
        for partial in ["", "7 9 b", "7 9\n", "0 9 b\n", "-1 9 b\n"] {
            assert_eq!(partial.parse::<Keeper>(), Err(()), "{partial:?}");
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics(text in "[0-9a-zA-Z() \n:-]{0,200}") {
            let _ = text.parse::<Keeper>();
            let _ = text.parse::<Stat>();
            let _ = memory_mib(&text);
        }
    }
}
