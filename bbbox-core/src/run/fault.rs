//! What goes wrong with a job, and what to do about it.

use super::message::Refusal;
use crate::{
    error::{Effect, Error},
    id::JobId,
};

pub(super) fn no_such(job: &JobId) -> Error {
    Error::gone("the box has no such job").at("job", job).fix("see those it keeps: `bbbox job list BOX`")
}

pub(super) fn lost(job: &JobId) -> Error {
    Error::failed("the job runs no more, and how it ended was not recorded")
        .effect(Effect::Unknown)
        .fix("read what it wrote; the box may have been restarted")
        .at("job", job)
}

pub(super) fn silent() -> Error {
    Error::unavailable("contact with the box is lost each time it is made")
        .fix("look how the box is: `bbbox status BOX`")
}

pub(super) fn unknown(job: &JobId, source: Option<Error>) -> Error {
    let error = Error::unavailable("contact with the box was lost, and what became of the job is not known")
        .effect(Effect::Unknown)
        .fix("ask for the job by its ID when the box answers again")
        .at("job", job);
    match source {
        Some(source) => error.because(source),
        None => error,
    }
}

/// What to do where a job's files cannot be made.
const ROOM: &str = "free space in the box, and check that its user's home folder can be written";

pub(super) fn refused(job: &JobId, why: Refusal) -> Error {
    let error = match why {
        Refusal::Full => {
            Error::failed("the box's disk has no room for a job").fix("free some space in the box")
        }
        Refusal::NoDirectory => Error::failed("the job's directory could not be made in the box").fix(ROOM),
        Refusal::NoPipe => Error::failed("the job's stdin could not be made in the box").fix(ROOM),
        Refusal::Exists => Error::failed("the box has a job of this ID already").fix("use another ID"),
    };
    error.at("job", job)
}
