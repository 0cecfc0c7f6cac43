//! What reads an engine's answers, as functions of any bytes that panic when something does not hold.
//!
//! The fuzz targets in `fuzz/` call them, and so does a test here with each input that is kept in `fuzz/corpus/`. It is
//! in no program that anybody uses.

use bbbox_core::id::BackendId;
use bollard::{
    container::LogOutput,
    errors::Error as Native,
    models::{ContainerInspectResponse, ContainerSummary, SystemInfo, VolumeListResponse},
};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::{
    config::read_host,
    exec,
    map::{self, Container, Labels},
    privilege, recipe,
};

/// One target: what is fuzzed under its name.
pub type Target = (&'static str, fn(&[u8]));

/// Every target of this crate.
pub const TARGETS: &[Target] = &[("answers", answers), ("frames", frames), ("lines", lines)];

/// What an engine answers about containers, volumes and itself: whatever it is, a guest that is made of it is whole.
pub fn answers(bytes: &[u8]) {
    if let Some(native) = json::<ContainerInspectResponse>(bytes) {
        guest_of(&map::inspected(native));
    }
    for native in json::<Vec<ContainerSummary>>(bytes).into_iter().flatten() {
        guest_of(&map::listed(native));
    }
    let volumes = json::<VolumeListResponse>(bytes).and_then(|list| list.volumes).into_iter().flatten();
    for (id, note) in map::newest_notes(volumes.map(|volume| volume.labels)) {
        assert_eq!(note.get(map::BOX), Some(&id));
        assert!(map::generation(&note).is_some());
        labels(&note);
    }
    if let Some(kind) = json::<SystemInfo>(bytes).and_then(|info| map::kind(&info)) {
        assert!(map::KINDS.iter().any(|(known, _)| *known == kind.as_str()));
    }
}

fn json<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

fn guest_of(container: &Container) {
    let _ = container.has_docker();
    if let Some(size) = container.size {
        assert!(size.cores > 0 && size.memory_mib > 0, "a container of {size}");
    }
    labels(&container.labels);
    let Some(owner) = map::owner(&container.labels) else { return };
    let mut guest = map::guest(container, &owner);
    assert!(container.is(&guest) && guest.box_id == owner.box_id, "{guest:?}");
    assert!(guest.size.cores > 0 && guest.size.memory_mib > 0, "a guest of {}", guest.size);
    map::set_made(&mut guest, container);
    let _ = guest.made();
}

/// An owner that was read from labels makes labels that say the same.
fn labels(all: &Labels) {
    let (Some(owner), Some(size)) = (map::owner(all), map::size(all)) else { return };
    assert!(size.cores > 0 && size.memory_mib > 0, "labels of {size}");
    assert_eq!(map::box_of(all, &owner.install).as_ref(), Some(&owner.box_id));
    let Ok(backend) = BackendId::parse("docker") else { return };
    let again = map::owner_labels(&backend, &owner, &size);
    assert_eq!(map::owner(&again).as_ref(), Some(&owner));
    assert_eq!(map::size(&again), Some(size));
    let (cpus, bytes) = map::limits(&size);
    assert!(cpus > 0 && bytes > 0, "{size} is {cpus} and {bytes} at the engine");
}

/// The frames of a process's output: each stream gets its own bytes in order, up to what breaks them.
///
/// Two bytes stand before each frame: what it is, and how long.
pub fn frames(bytes: &[u8]) {
    let (mut rest, mut frames) = (bytes, Vec::new());
    while let [kind, len, more @ ..] = rest {
        let (message, more) = more.split_at(more.len().min(usize::from(*len)));
        rest = more;
        let message = Bytes::copy_from_slice(message);
        frames.push(match kind % 5 {
            0 => Ok(LogOutput::StdIn { message }),
            1 => Ok(LogOutput::StdOut { message }),
            2 => Ok(LogOutput::StdErr { message }),
            3 => Ok(LogOutput::Console { message }),
            _ => Err(Native::RequestTimeoutError),
        });
    }
    let (mut out, mut err, mut broken) = (Vec::new(), Vec::new(), false);
    for (nth, frame) in frames.iter().enumerate() {
        match frame {
            Ok(LogOutput::StdIn { message } | LogOutput::StdOut { message }) => {
                out.extend_from_slice(message)
            }
            Ok(LogOutput::StdErr { message }) => err.extend_from_slice(message),
            Ok(LogOutput::Console { message }) if nth == 0 => err.extend_from_slice(message),
            Ok(LogOutput::Console { .. }) | Err(_) => {
                broken = true;
                break;
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("there is no runtime: {error}"));
    let seen = runtime.block_on(exec::taken_apart(frames));
    assert_eq!(seen, [(out, broken), (err, broken)]);
}

/// Lines that are read by eye: a build's progress, what an engine grants and refuses, where it is.
pub fn lines(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(done) = recipe::fraction(&text) {
        assert!((0.0..1.0).contains(&done), "{done}");
    }
    privilege::read(&text);
    let _ = read_host(&text);
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Plays every input that is kept for a target.
    #[test]
    fn every_answer_that_was_kept_holds() {
        for (name, target) in TARGETS {
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
            let mut inputs = 0;
            for entry in fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
                let path = entry.unwrap().path();
                println!("{}", path.display());
                target(&fs::read(&path).unwrap());
                inputs += 1;
            }
            assert!(inputs > 0, "no input is kept for {name}");
        }
    }
}
