//! Copies: what actors have to copy, and the oracle about what they are told.
//!
//! Every copy in has bytes of its own, so a file tells which copy put it there, and whether all of it.

use std::{collections::BTreeMap, fmt, fs, path::PathBuf, sync::Arc};

use bbbox::{
    Error, Result,
    boxes::BoxHandle,
    error::{Effect, ErrorKind},
    run::Copied,
};

use super::{World, action::Action, inside::Inside, parts::Parts, verdict::Answer};

/// The name under which every copy puts its file.
pub(super) const FILE: &str = "file";

/// The name under which every copy puts its directory, and what it has in it, with sizes.
const TREE: &str = "tree";
const IN_TREE: [(&str, usize); 3] = [("one", 30), ("sub/two", 5_000), ("three", 0)];

/// What arrived of a file.
pub(super) struct Bytes(pub(super) Vec<u8>);

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

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

/// What is in the directory of this tag.
fn contents(tag: u64) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    IN_TREE.into_iter().map(move |(name, len)| (name, content(tag, len)))
}

/// Copies a directory into the box.
pub(super) async fn tree_in(world: &Arc<World>, handle: &BoxHandle, tag: u64) -> Result<Answer> {
    let top = local(world, &format!("tree-{tag}"))?;
    let written = fs::create_dir_all(top.join("sub"))
        .and_then(|()| contents(tag).try_for_each(|(name, bytes)| fs::write(top.join(name), bytes)));
    written.map_err(|e| Error::failed("a directory was not written").because(e))?;
    handle.session()?.copy_in(&top, TREE, &ignore).await.map(Answer::CopiedIn)
}

/// Copies the directory of the box out, to where nothing is.
pub(super) async fn tree_out(
    world: &Arc<World>,
    handle: &BoxHandle,
    slot: usize,
    began: u64,
) -> Result<Answer> {
    let top = local(world, &format!("tree-out-{slot}-{began}"))?;
    let copied = handle.session()?.copy_out(TREE, &top, &ignore).await;
    if copied.is_err() && top.exists() {
        world.with(|p| p.problem(format!("b{slot}: a copy out that failed left something here")));
    }
    let copied = copied?;
    let names = IN_TREE.iter().map(|(name, _)| *name);
    let arrived = names.filter_map(|name| Some((name.to_owned(), Bytes(fs::read(top.join(name)).ok()?))));
    let arrived: BTreeMap<String, Bytes> = arrived.collect();
    if copied.files != arrived.len() as u64 {
        world.with(|p| p.problem(format!("b{slot}: of {copied:?} there is {arrived:?}")));
    }
    Ok(Answer::TreeOut(arrived))
}

fn local(world: &Arc<World>, name: &str) -> Result<PathBuf> {
    let dir = world.with(Parts::local).ok_or_else(|| Error::failed("there is no directory for copies"))?;
    Ok(dir.join(name))
}

impl Parts {
    /// The insides of every guest that the box of a slot has, or had; `None` for a slot that nobody acquired.
    fn insides(&self, slot: usize) -> Option<impl Iterator<Item = &Inside>> {
        let fate = self.fates.all.get(&slot)?;
        let install = &self.installs[fate.install].id;
        let guests = self.clouds.iter().flat_map(|cloud| cloud.guests.values().chain(&cloud.past));
        Some(guests.filter(|m| m.is(install, &fate.id)).map(|m| &m.inside))
    }

    /// Whether any of them was given this file.
    fn was_put(&self, slot: usize, name: &str, bytes: &[u8]) -> bool {
        self.insides(slot).is_none_or(|mut all| all.any(|inside| inside.was_put(name, bytes)))
    }

    /// Whether a copy out may fail as what it copies was changed under it.
    pub(super) fn changed_under(&self, action: &Action, began: u64, error: &Error) -> bool {
        let (slot, name) = match action {
            Action::CopyOut { slot } => (slot, FILE),
            Action::CopyTreeOut { slot } => (slot, TREE),
            _ => return false,
        };
        let mut insides = self.insides(*slot).into_iter().flatten();
        error.kind() == ErrorKind::Failed && insides.any(|inside| inside.changed(name, began))
    }

    /// *Each file of a directory arrives whole or not at all*, and what is told of it is so.
    fn judge_tree(&mut self, action: &Action, began: u64, answer: &Answer) {
        match (action, answer) {
            (Action::CopyTreeIn { slot, tag }, Answer::CopiedIn(copied)) => {
                let bytes = IN_TREE.iter().map(|(_, len)| *len as u64).sum();
                let told = *copied == Copied { files: IN_TREE.len() as u64, bytes, skipped: Vec::new() };
                let there =
                    |(name, bytes): (&str, Vec<u8>)| self.was_put(*slot, &format!("{TREE}/{name}"), &bytes);
                if !told || !(self.was_marked(*slot) || contents(*tag).all(there)) {
                    self.problem(format!("b{slot}: directory {tag} is told as {copied:?} and is not there"));
                }
            }
            (Action::CopyTreeOut { slot }, Answer::TreeOut(arrived)) => {
                let Some(fate) = self.fates.all.get(slot) else { return };
                let guests = self.clouds.iter().flat_map(|cloud| cloud.guests.values().chain(&cloud.past));
                let its: Vec<_> = guests.filter(|m| m.owner.box_id == fate.id || m.unasked).collect();
                let was = |(name, bytes): (&String, &Bytes)| {
                    its.iter().any(|m| m.inside.has_been(&format!("{TREE}/{name}"), &bytes.0, began))
                };
                if arrived.is_empty() || !arrived.iter().all(was) {
                    self.problem(format!("b{slot}: a copy out brought {arrived:?}, which was never there"));
                }
            }
            _ => {}
        }
    }

    /// A guest that was marked as another's is not found any more.
    fn was_marked(&self, slot: usize) -> bool {
        self.fates.all.get(&slot).is_some_and(|f| f.may_end.contains_key("deleted by hand"))
    }

    /// *A copy arrives whole or not at all*, and what is told of it is so.
    pub(super) fn judge_copy(&mut self, action: &Action, began: u64, answer: &Answer) {
        self.judge_tree(action, began, answer);
        match (action, answer) {
            (Action::CopyIn { slot, tag, len, to }, Answer::CopiedIn(copied)) => {
                let told = *copied == Copied { files: 1, bytes: *len as u64, skipped: Vec::new() };
                let there = self.was_marked(*slot) || self.was_put(*slot, FILE, &content(*tag, *len));
                if !told || to != FILE || !there {
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
        let (slot, tag, put) = match action {
            Action::CopyIn { slot, tag, len, .. } if *len > 0 => {
                (slot, tag, self.was_put(*slot, FILE, &content(*tag, *len)))
            }
            Action::CopyTreeIn { slot, tag } => {
                let put = |(name, bytes): (&str, Vec<u8>)| {
                    !bytes.is_empty() && self.was_put(*slot, &format!("{TREE}/{name}"), &bytes)
                };
                (slot, tag, contents(*tag).any(put))
            }
            _ => return,
        };
        if put && error.effect_of() == Effect::None {
            let words = error.chain();
            self.problem(format!("b{slot}: copy {tag} is there and was told as not done: {words}"));
        }
    }
}

/// Whether a copy may be refused for what it names.
pub(super) fn names_nothing(action: &Action, error: &Error) -> bool {
    let missing = match action {
        Action::CopyIn { to, .. } => to != FILE,
        Action::CopyOut { .. } | Action::CopyTreeOut { .. } => true,
        _ => false,
    };
    missing && error.kind() == ErrorKind::Gone
}
