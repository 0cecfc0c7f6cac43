//! What a run does, as data: it can be printed, replayed and made shorter.

use serde::{Deserialize, Serialize};

/// One whole run. Everything that happens follows from it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Schedule {
    pub(super) seed: u64,
    pub(super) shape: Shape,
    pub(super) weather: Weather,
    /// What each actor does, one after the other.
    pub(super) steps: Vec<Step>,
    /// Where the process dies.
    pub(super) deaths: Vec<Death>,
    /// Faults that are left out, by their names in the trace: for making a run shorter.
    #[serde(default)]
    pub(super) mute: Vec<String>,
}

/// How the world is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Shape {
    /// Memory of each host of the first provider, in GiB.
    pub(super) memory_gib: u64,
    pub(super) hosts: u64,
    /// Whether providers refuse what does not fit. One that does not relies on its callers.
    pub(super) enforces: bool,
    /// How old a listing may be, in milliseconds.
    pub(super) lag_ms: u64,
    pub(super) make_ms: u64,
    pub(super) boot_ms: u64,
    /// Whether the first provider's guests must be stopped to be resized; the second's need not.
    pub(super) needs_stop: bool,
    /// Whether there is a second provider.
    pub(super) second: bool,
    /// Whether the process sweeps by itself.
    pub(super) upkeep: bool,
    pub(super) threads: u64,
    pub(super) installs: u64,
}

/// How often each call meets which fault, in parts of a thousand.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Weather {
    /// Refused before anything is done, as by throttling.
    pub(super) refused: u64,
    /// Done, and the answer lost.
    pub(super) lost: u64,
    /// The answer lost, and done a while after that.
    pub(super) late: u64,
    /// Slower than anybody waits for.
    pub(super) slow: u64,
    /// Refused for good, in the provider's words.
    pub(super) broken: u64,
    /// A listing without some of its guests.
    pub(super) partial: u64,
    /// A connection into a box that drops or stalls.
    pub(super) line: u64,
    /// A thread that is reported to be what it is not, or not reported.
    pub(super) misreported: u64,
}

/// What one actor does next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) actor: usize,
    pub(super) pause_ms: u64,
    pub(super) action: Action,
}

/// One death of the process: at the `nth` time that it comes to the crash point `at`, or to any of the operation `at`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Death {
    pub(super) at: String,
    pub(super) nth: u64,
    /// How many crash points the next process passes before it dies too.
    #[serde(default)]
    pub(super) again: Option<u64>,
}

/// One thing that somebody does. A `slot` names the box that the acquire of that slot was for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Action {
    Acquire {
        slot: usize,
        memory_gib: u64,
        on: Option<String>,
        waits: bool,
    },
    /// Says an acquire again under its request ID.
    Again {
        slot: usize,
    },
    Cancel {
        slot: usize,
    },
    Run {
        slot: usize,
        script: String,
    },
    /// Starts a job and goes on.
    Launch {
        slot: usize,
        script: String,
    },
    /// Waits for the newest job of the slot.
    Wait {
        slot: usize,
    },
    Look {
        slot: usize,
    },
    Signal {
        slot: usize,
    },
    /// Runs a script with its output passed through as it comes.
    Stream {
        slot: usize,
        script: String,
    },
    /// Follows what the newest job of the slot says, from its beginning to its end.
    Follow {
        slot: usize,
    },
    /// Copies a directory of its own into the box.
    CopyTreeIn {
        slot: usize,
        tag: u64,
    },
    /// Copies the directory that was copied in out again.
    CopyTreeOut {
        slot: usize,
    },
    /// Copies a file of its own into the box.
    CopyIn {
        slot: usize,
        to: String,
        tag: u64,
        len: usize,
    },
    /// Copies what was copied in last out again.
    CopyOut {
        slot: usize,
    },
    Start {
        slot: usize,
    },
    Stop {
        slot: usize,
        force: bool,
    },
    Resize {
        slot: usize,
        memory_gib: u64,
    },
    Rename {
        slot: usize,
        name: String,
    },
    HandTo {
        slot: usize,
        thread: Option<u64>,
    },
    Release {
        slot: usize,
        force: bool,
    },
    Forget {
        slot: usize,
    },
    Check {
        slot: usize,
    },
    List,
    Sweep,
    /// Switches a backend off for new boxes, on, or takes it out of the configuration for a while.
    Configure {
        backend: u64,
        to: Configured,
    },
    /// The process ends in order and begins again.
    Restart,
    /// The process dies now.
    Die,
    /// The store is lost with the process.
    LoseStore,
    /// The store takes nothing more for a while.
    FillStore {
        ms: u64,
    },
    JumpClock {
        ms: i64,
    },
    /// A guest crashes, or is shut down from inside.
    GuestEnds {
        slot: usize,
        by_guest: bool,
    },
    /// Somebody at the provider does something to a guest.
    ByHand {
        slot: usize,
        deed: Hand,
    },
    HostDown {
        backend: u64,
        host: u64,
        ms: u64,
        crash: bool,
    },
    ThreadEnds {
        thread: u64,
    },
    ThreadWorks {
        thread: u64,
        works: bool,
    },
    /// Every connection into boxes breaks.
    CutLines,
    /// Two things at once, by one who does not wait for the first.
    Both {
        first: Box<Action>,
        second: Box<Action>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Configured {
    On,
    Off,
    Out,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Hand {
    Delete,
    Stop,
    Start,
    Rename,
    /// Makes another guest that copies its owner.
    Copy,
    /// Marks it as somebody else's.
    Disown,
    /// Marks it as the guest of another box of the install.
    Relabel,
}

impl Action {
    /// The operation's name in the table of what was covered.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "acquire",
            Self::Again { .. } => "again",
            Self::Cancel { .. } => "cancel",
            Self::Run { .. } => "run",
            Self::Launch { .. } => "launch",
            Self::Wait { .. } => "wait",
            Self::Look { .. } => "look",
            Self::Signal { .. } => "signal",
            Self::Stream { .. } => "stream",
            Self::Follow { .. } => "follow",
            Self::CopyTreeIn { .. } => "copy-tree-in",
            Self::CopyTreeOut { .. } => "copy-tree-out",
            Self::CopyIn { .. } => "copy-in",
            Self::CopyOut { .. } => "copy-out",
            Self::Start { .. } => "start",
            Self::Stop { .. } => "stop",
            Self::Resize { .. } => "resize",
            Self::Rename { .. } => "rename",
            Self::HandTo { .. } => "hand-to",
            Self::Release { .. } => "release",
            Self::Forget { .. } => "forget",
            Self::Check { .. } => "check",
            Self::List => "list",
            Self::Sweep => "sweep",
            Self::Configure { .. } => "configure",
            Self::Restart => "restart",
            Self::Die => "die",
            Self::LoseStore => "lose-store",
            Self::FillStore { .. } => "fill-store",
            Self::JumpClock { .. } => "jump-clock",
            Self::GuestEnds { .. } => "guest-ends",
            Self::ByHand { .. } => "by-hand",
            Self::HostDown { .. } => "host-down",
            Self::ThreadEnds { .. } => "thread-ends",
            Self::ThreadWorks { .. } => "thread-works",
            Self::CutLines => "cut-lines",
            Self::Both { first, .. } => first.name(),
        }
    }

    /// Whether it reaches into a box.
    pub(super) fn is_inside(&self) -> bool {
        matches!(
            self,
            Self::Run { .. }
                | Self::Launch { .. }
                | Self::Wait { .. }
                | Self::Look { .. }
                | Self::Signal { .. }
                | Self::Stream { .. }
                | Self::Follow { .. }
                | Self::CopyTreeIn { .. }
                | Self::CopyTreeOut { .. }
                | Self::CopyIn { .. }
                | Self::CopyOut { .. }
        )
    }

    /// Whether it is done to the world rather than asked of bb-box.
    pub(super) fn is_nature(&self) -> bool {
        matches!(
            self,
            Self::Die
                | Self::LoseStore
                | Self::FillStore { .. }
                | Self::JumpClock { .. }
                | Self::GuestEnds { .. }
                | Self::ByHand { .. }
                | Self::HostDown { .. }
                | Self::ThreadEnds { .. }
                | Self::ThreadWorks { .. }
                | Self::CutLines
        )
    }
}
