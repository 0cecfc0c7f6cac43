//! Copies: what actors have to copy, and the oracle about what they are told.
//!
//! Every copy in has bytes of its own, so a file tells which copy put it there, and whether all of it.

use std::{fmt, fs, path::PathBuf, sync::Arc};

use bbbox::{
    Error, Result,
    boxes::BoxHandle,
    error::{Effect, ErrorKind},
    run::Copied,
};

use super::{World, action::Action, parts::Parts, verdict::Answer};

/// The name under which every copy puts its file.
pub(super) const FILE: &str = "file";

/// What arrived of a file.
pub(super) struct Bytes(Vec<u8>);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What the copy of this tag brings.
fn content(tag: u64, len: usize) -> Vec<u8> {
    format!("{tag} ").bytes().cycle().take(len).collect()
}

fn ignore(_: u64, _: Option<u64>) {}

/// Copies a file into the box.
pub(super) async fn copy_in(
    world: &Arc<World>,
    handle: &BoxHandle,
    to: &str,
    (tag, len): (u64, usize),
) -> Result<Answer> {
    let local = local(world, &format!("in-{tag}"))?;
    fs::write(&local, content(tag, len)).map_err(|e| Error::failed("a file was not written").because(e))?;
    let session = handle.session()?;
    session.copy_in(&local, to, &ignore).await.map(Answer::CopiedIn)
}

/// Copies the file of the box out over an old one.
pub(super) async fn copy_out(
    world: &Arc<World>,
    handle: &BoxHandle,
    slot: usize,
    began: u64,
) -> Result<Answer> {
    let old = b"what was here before";
    let local = local(world, &format!("out-{slot}-{began}"))?;
    fs::write(&local, old).map_err(|e| Error::failed("a file was not written").because(e))?;
    let copied = handle.session()?.copy_out(FILE, &local, &ignore).await;
    let bytes = fs::read(&local).unwrap_or_default();
    if copied.is_err() && bytes != old {
        world.with(|p| p.problem(format!("b{slot}: a copy out that failed changed the file here")));
    }
    copied.map(|_| Answer::CopiedOut(Bytes(bytes)))
}

fn local(world: &Arc<World>, name: &str) -> Result<PathBuf> {
    let dir = world.with(Parts::local).ok_or_else(|| Error::failed("there is no directory for copies"))?;
    Ok(dir.join(name))
}

impl Parts {
    /// Whether any guest that the box of a slot has, or had, was given the file of this copy.
    fn was_put(&self, slot: usize, (tag, len): (u64, usize)) -> bool {
        let Some(fate) = self.fates.all.get(&slot) else { return true };
        let install = &self.installs[fate.install].id;
        let guests = self.clouds.iter().flat_map(|cloud| cloud.guests.values().chain(&cloud.past));
        let bytes = content(tag, len);
        guests.filter(|m| m.is(install, &fate.id)).any(|m| m.inside.was_put(FILE, &bytes))
    }

    /// *A copy arrives whole or not at all*, and what is told of it is so.
    pub(super) fn judge_copy(&mut self, action: &Action, began: u64, answer: &Answer) {
        match (action, answer) {
            (Action::CopyIn { slot, tag, len, to }, Answer::CopiedIn(copied)) => {
                let told = *copied == Copied { files: 1, bytes: *len as u64, skipped: Vec::new() };
                // A guest that was marked as another's is not found any more.
                let marked =
                    self.fates.all.get(slot).is_some_and(|f| f.may_end.contains_key("deleted by hand"));
                if !told || to != FILE || !(marked || self.was_put(*slot, (*tag, *len))) {
                    self.problem(format!(
                        "b{slot}: copy {tag} to {to} is told as {copied:?} and is not there"
                    ));
                }
            }
            (Action::CopyOut { slot }, Answer::CopiedOut(Bytes(bytes))) => {
                let Some(fate) = self.fates.all.get(slot) else { return };
                let guests = self.clouds.iter().flat_map(|cloud| cloud.guests.values().chain(&cloud.past));
                let mut its = guests.filter(|m| m.owner.box_id == fate.id || m.unasked);
                if !its.any(|m| m.inside.has_been(FILE, bytes, began)) {
                    self.problem(format!(
                        "b{slot}: a copy out brought {} bytes that its file never was",
                        bytes.len()
                    ));
                }
            }
            _ => {}
        }
    }

    /// A copy that failed, and is said to have done nothing, did nothing.
    pub(super) fn judge_no_copy(&mut self, action: &Action, error: &Error) {
        let Action::CopyIn { slot, tag, len, .. } = action else { return };
        if *len > 0 && error.effect_of() == Effect::None && self.was_put(*slot, (*tag, *len)) {
            let words = error.chain();
            self.problem(format!("b{slot}: copy {tag} is there and was told as not done: {words}"));
        }
    }
}

/// Whether a copy may be refused for what it names.
pub(super) fn names_nothing(action: &Action, error: &Error) -> bool {
    let missing = match action {
        Action::CopyIn { to, .. } => to != FILE,
        Action::CopyOut { .. } => true,
        _ => false,
    };
    missing && error.kind() == ErrorKind::Gone
}
