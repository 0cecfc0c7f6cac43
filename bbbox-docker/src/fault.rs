//! The engine's failures as this project's errors: the one table.

use std::{error::Error as StdError, io};

use bbbox_core::{Effect, Error, ErrorKind};
use bollard::errors::Error as Native;

/// Whether the call that failed could have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// It only reads.
    Reads,
    /// It changes something: after a lost answer it may have happened.
    Changes,
}

/// The engine's own words for "there is none", lower case, as 20.10 and 29 have them in their 404s. Any other 404 is
/// something else's answer, such as a proxy's that does not pass the call on, and says nothing about what was asked.
const NONE: [&str; 5] = [
    "no such container",
    "no such image",
    "no such volume",
    "no such exec instance",
    "could not find the file",
];

/// What `error` means for someone who was `doing` something.
pub(crate) fn fault(doing: impl Into<String>, call: Call, error: Native) -> Error {
    let lost = if call == Call::Changes { Effect::Unknown } else { Effect::None };
    let (kind, effect, fix) = match &error {
        Native::DockerResponseServerError { status_code, message } => {
            let kind = answered(*status_code, message);
            let fix = (*status_code == 404 && kind != ErrorKind::Gone)
                .then_some("let whatever stands in front of the engine pass this call on");
            (kind, Effect::None, fix)
        }
        Native::SocketNotFoundError(_) => {
            (ErrorKind::Unavailable, Effect::None, unreachable_fix(io::ErrorKind::NotFound))
        }
        Native::HyperLegacyError { err } if err.is_connect() => {
            let fix = io_kind(err).and_then(unreachable_fix);
            (ErrorKind::Unavailable, Effect::None, fix)
        }
        Native::RequestTimeoutError
        | Native::HyperLegacyError { .. }
        | Native::HyperResponseError { .. }
        | Native::IOError { .. } => (ErrorKind::Unavailable, lost, None),
        Native::JsonDataError { .. } | Native::JsonSerdeError { .. } => (
            ErrorKind::Failed,
            lost,
            Some("check that a Docker Engine, and nothing in front of it, answers there"),
        ),
        _ => (ErrorKind::Failed, lost, None),
    };
    let mut made = Error::new(kind, doing).effect(effect);
    if let Some(fix) = fix {
        made = made.fix(fix);
    }
    made.because(error)
}

/// A status code, told apart by the engine's own words where the code alone says too little.
fn answered(status: u16, message: &str) -> ErrorKind {
    let says = |words: &str| message.to_ascii_lowercase().contains(words);
    match status {
        404 if NONE.iter().any(|words| says(words)) => ErrorKind::Gone,
        409 => ErrorKind::Busy,
        400 => ErrorKind::Refused,
        401 | 403 => ErrorKind::Denied,
        502..=504 => ErrorKind::Unavailable,
        _ if says("no space left on device") => ErrorKind::NoCapacity,
        _ if says("cannot allocate memory") => ErrorKind::NoCapacity,
        _ => ErrorKind::Failed,
    }
}

fn unreachable_fix(kind: io::ErrorKind) -> Option<&'static str> {
    match kind {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Some("start the Docker Engine, or name its socket as `host` in the backend's configuration")
        }
        io::ErrorKind::PermissionDenied => Some(
            "add your user to the group that owns the engine's socket, usually docker, and sign in again",
        ),
        _ => None,
    }
}

/// The first input or output error among `error`'s causes.
fn io_kind(error: &(dyn StdError + 'static)) -> Option<io::ErrorKind> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        next = cause.source();
    }
    None
}

/// Whether the engine says that there is no such container: the only words that count as gone.
pub(crate) fn is_no_such_container(error: &Native) -> bool {
    says(error, 404, "no such container")
}

/// Whether nothing answered at all.
pub(crate) fn is_silence(error: &Native) -> bool {
    matches!(
        error,
        Native::SocketNotFoundError(_) | Native::HyperLegacyError { .. } | Native::RequestTimeoutError
    )
}

/// Whether the engine answered `status` with `words` in its message.
pub(crate) fn says(error: &Native, status: u16, words: &str) -> bool {
    matches!(error, Native::DockerResponseServerError { status_code, message }
        if *status_code == status && message.to_ascii_lowercase().contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status_code: u16, message: &str) -> Native {
        Native::DockerResponseServerError { status_code, message: message.to_owned() }
    }

    #[test]
    fn the_table_holds() {
        let cases = [
            (answer(404, "page not found"), ErrorKind::Failed, Effect::None),
            (answer(404, "<html>404 Not Found</html>"), ErrorKind::Failed, Effect::None),
            (
                answer(409, "Conflict. The container name \"/x\" is already in use"),
                ErrorKind::Busy,
                Effect::None,
            ),
            (answer(400, "Range of CPUs is from 0.01 to 2.00"), ErrorKind::Refused, Effect::None),
            (answer(500, "write /x: no space left on device"), ErrorKind::NoCapacity, Effect::None),
            (answer(503, "upstream down"), ErrorKind::Unavailable, Effect::None),
            (answer(500, "anything else"), ErrorKind::Failed, Effect::None),
            (Native::RequestTimeoutError, ErrorKind::Unavailable, Effect::Unknown),
            (
                Native::from(io::Error::from(io::ErrorKind::ConnectionReset)),
                ErrorKind::Unavailable,
                Effect::Unknown,
            ),
            (Native::DockerStreamError { error: "build failed".into() }, ErrorKind::Failed, Effect::Unknown),
        ];
        for (native, kind, effect) in cases {
            let words = native.to_string();
            let error = fault("could not do it", Call::Changes, native);
            assert_eq!((error.kind(), error.effect_of()), (kind, effect), "{words}");
            assert!(error.chain().contains(&words), "{error:?}");
        }
        assert_eq!(fault("x", Call::Reads, Native::RequestTimeoutError).effect_of(), Effect::None);
    }

    #[test]
    fn an_engine_that_is_down_says_how_to_start_it() {
        let error = fault("x", Call::Changes, Native::SocketNotFoundError("/x".into()));
        assert_eq!((error.kind(), error.effect_of()), (ErrorKind::Unavailable, Effect::None));
        assert!(error.how_to_fix().is_some_and(|fix| fix.contains("start the Docker Engine")));
    }

    #[test]
    fn only_the_engines_own_words_count_as_gone() {
        let samples = include_str!("../samples/none.txt");
        assert!(samples.lines().count() > 6);
        for words in samples.lines() {
            for words in [words.to_owned(), words.to_uppercase()] {
                let error = fault("x", Call::Reads, answer(404, &words));
                assert_eq!(error.kind(), ErrorKind::Gone, "{words}");
                assert_eq!(answered(500, &words), ErrorKind::Failed, "{words}");
            }
        }
        let error = fault("x", Call::Changes, answer(404, "page not found"));
        assert!(error.how_to_fix().is_some_and(|fix| fix.contains("in front of the engine")), "{error:?}");
        assert!(is_no_such_container(&answer(404, "No such container: abc")));
        assert!(!is_no_such_container(&answer(404, "page not found")));
        assert!(!is_no_such_container(&answer(500, "No such container: abc")));
    }
}
