//! What a runner says, one line at a time.
//!
//! A box is not trusted to speak the protocol: any line parses to a message or to nothing, and nothing is
//! allocated by a length that the box names.

use crate::{error::Result, id::JobId, transport::Exit};

/// The longest line a runner may send. Its messages stay below 4096 bytes.
pub(super) const LONGEST_LINE: usize = 8192;

/// One message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A job ended.
    Ended { job: JobId, status: Status, output: Output, unrecorded: bool },
    /// A job was not launched.
    Refused { job: JobId, why: Refusal },
    /// How a job stands.
    State { job: JobId, state: State },
    /// The list is complete.
    ListEnd,
    /// What a signal did.
    Killed { job: JobId, done: Killed },
    /// Bytes of the file that was asked for.
    Bytes(Vec<u8>),
    /// The answer to `get` is complete; the file has this many bytes.
    Got { job: JobId, size: u64 },
    /// The answer to a ping.
    Pong(u64),
}

/// A job's status as its supervisor recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Exit(Exit),
    Lost,
}

/// A job's output as its end brings it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Inline { out: Vec<u8>, err: Vec<u8> },
    Sizes { out: u64, err: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Exists,
    Full,
    NoDirectory,
    NoPipe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Done(Status),
    Run,
    New,
    Lost,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Killed {
    Sent,
    NotAllowed,
    Gone,
}

/// Parses one line without its newline; `None` for anything a runner does not say.
pub(super) fn parse(line: &[u8]) -> Option<Message> {
    if line.first() == Some(&b' ') {
        return Some(Message::Bytes(hex(line)?));
    }
    let text = std::str::from_utf8(line).ok()?;
    let (verb, rest) = text.split_once(' ')?;
    let mut words = rest.splitn(4, ' ');
    let mut word = || words.next();
    match verb {
        "D" => {
            let (job, status, form) = (job(word()?).ok()?, status(word()?)?, word()?);
            let (rest, unrecorded) = match word()? {
                rest if rest.ends_with(" full") => (&rest[..rest.len() - 5], true),
                rest => (rest, false),
            };
            Some(Message::Ended { job, status, output: output(form, rest)?, unrecorded })
        }
        "E" => Some(Message::Refused { job: job(word()?).ok()?, why: refusal(word()?)? }),
        "S" => {
            let (job, kind) = (job(word()?).ok()?, word()?);
            Some(Message::State { job, state: state(kind, word())? })
        }
        "L" => Some(Message::ListEnd),
        "K" => Some(Message::Killed { job: job(word()?).ok()?, done: killed(word()?)? }),
        "G" => {
            let job = job(word()?).ok()?;
            word()?;
            Some(Message::Got { job, size: word()?.parse().ok()? })
        }
        "P" => Some(Message::Pong(word()?.parse().ok()?)),
        _ => None,
    }
}

fn job(word: &str) -> Result<JobId> {
    JobId::parse(word)
}

fn status(word: &str) -> Option<Status> {
    if word == "lost" {
        return Some(Status::Lost);
    }
    if let Some(signal) = word.strip_prefix('s') {
        return signal.parse().ok().filter(|n| (1..=127).contains(n)).map(|n| Status::Exit(Exit::Signal(n)));
    }
    // Where the shell cannot tell a signal from a code, what it did say is the code.
    word.strip_prefix('?').unwrap_or(word).parse().ok().map(|n| Status::Exit(Exit::Code(n)))
}

fn output(form: &str, rest: &str) -> Option<Output> {
    match form {
        "I" => {
            let (out, err) = rest.split_once('/')?;
            Some(Output::Inline { out: hex_or_none(out)?, err: hex_or_none(err)? })
        }
        "B" => {
            let (out, err) = rest.split_once(' ')?;
            Some(Output::Sizes { out: out.parse().ok()?, err: err.parse().ok()? })
        }
        _ => None,
    }
}

fn refusal(word: &str) -> Option<Refusal> {
    match word {
        "exists" => Some(Refusal::Exists),
        "full" => Some(Refusal::Full),
        "nodir" => Some(Refusal::NoDirectory),
        "nofifo" => Some(Refusal::NoPipe),
        _ => None,
    }
}

fn state(kind: &str, detail: Option<&str>) -> Option<State> {
    match kind {
        "done" => Some(State::Done(status(detail?)?)),
        "run" => Some(State::Run),
        "new" => Some(State::New),
        "lost" => Some(State::Lost),
        "none" => Some(State::None),
        _ => None,
    }
}

fn killed(word: &str) -> Option<Killed> {
    match word {
        "ok" => Some(Killed::Sent),
        "no" => Some(Killed::NotAllowed),
        "gone" => Some(Killed::Gone),
        _ => None,
    }
}

fn hex_or_none(text: &str) -> Option<Vec<u8>> {
    if text == "-" { Some(Vec::new()) } else { hex(text.as_bytes()) }
}

/// Pairs of hex digits with blanks between them, as `od` prints bytes.
fn hex(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 3 + 1);
    for pair in text.split(|b| *b == b' ').filter(|pair| !pair.is_empty()) {
        let [high, low] = pair else { return None };
        bytes.push(digit(*high)? << 4 | digit(*low)?);
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "jbabcdefghij01";

    proptest! {
        #[test]
        fn any_line_parses_to_a_message_or_to_nothing(line in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&line);
        }

        #[test]
        fn anything_after_a_known_verb_does_no_harm(verb in "[DESLKGPx]", rest in "[ -~]{0,80}") {
            let _ = parse(format!("{verb} {rest}").as_bytes());
            let _ = parse(format!("{verb} {ID} {rest}").as_bytes());
            let _ = parse(format!("D {ID} 0 {verb} {rest}").as_bytes());
        }

        #[test]
        fn output_of_any_bytes_comes_back(out in prop::collection::vec(any::<u8>(), 0..200), code: u8) {
            let hex = if out.is_empty() { "-".to_owned() }
                else { out.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ") };
            let want = Message::Ended {
                job: JobId::parse(ID).unwrap(),
                status: Status::Exit(Exit::Code(code)),
                output: Output::Inline { out: out.clone(), err: Vec::new() },
                unrecorded: false,
            };
            prop_assert_eq!(parse(format!("D {ID} {code} I {hex}/-").as_bytes()), Some(want));
        }
    }

    #[test]
    fn what_a_runner_says_is_understood() {
        let job = || JobId::parse(ID).unwrap();
        let said = |text: &str| parse(text.replace("ID", ID).as_bytes());
        assert_eq!(
            said("D ID s9 B 5000 18446744073709551615 full"),
            Some(Message::Ended {
                job: job(),
                status: Status::Exit(Exit::Signal(9)),
                output: Output::Sizes { out: 5000, err: u64::MAX },
                unrecorded: true
            })
        );
        assert_eq!(said("E ID exists"), Some(Message::Refused { job: job(), why: Refusal::Exists }));
        assert_eq!(
            said("S ID done ?130"),
            Some(Message::State { job: job(), state: State::Done(Status::Exit(Exit::Code(130))) })
        );
        assert_eq!(said("S ID run 12"), Some(Message::State { job: job(), state: State::Run }));
        assert_eq!(said("L end"), Some(Message::ListEnd));
        assert_eq!(said("K ID gone"), Some(Message::Killed { job: job(), done: Killed::Gone }));
        assert_eq!(said(" 00 ff 7f"), Some(Message::Bytes(vec![0, 255, 127])));
        assert_eq!(said("G ID out 77"), Some(Message::Got { job: job(), size: 77 }));
        assert_eq!(said("P 5"), Some(Message::Pong(5)));
        for wrong in
            ["", "D", "D ID", "D ID 256 I -/-", "D ID s0 I -/-", "D ../x 0 I -/-", "P -1", " 0", " zz"]
        {
            assert_eq!(said(wrong), None, "{wrong:?}");
        }
    }
}
