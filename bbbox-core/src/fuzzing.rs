//! What reads bytes from outside, as functions of any bytes that panic when something does not hold.
//!
//! The fuzz targets in `fuzz/` call them, and so does a test here with each input that is kept in `fuzz/corpus/`. It is
//! in no program that anybody uses.

use std::fmt::{Debug, Display};

use crate::{
    config::{Amount, check_text, check_value},
    driver::Drivers,
    error::Result,
    id::{BackendId, BoxId, BoxName, InstallId, JobId, KindId, OperationId, RequestId, SnapshotId, ThreadId},
    kind::{Feature, Wanted},
    size::{Size, SizeChoice, parse_mib},
};

#[cfg(all(feature = "local", target_os = "linux"))]
pub use crate::local::fuzzing::machine;
pub use crate::run::fuzzing::{archive, guard, runner};

/// One target: what is fuzzed under its name.
pub type Target = (&'static str, fn(&[u8]));

/// Every target of this crate.
pub const TARGETS: &[Target] = &[
    ("archive", archive),
    ("configuration", configuration),
    ("guard", guard),
    #[cfg(all(feature = "local", target_os = "linux"))]
    ("machine", machine),
    ("runner", runner),
    ("words", words),
];

fn drivers() -> Drivers {
    #[cfg(all(feature = "local", target_os = "linux"))]
    return Drivers::new().with::<crate::local::LocalConfig>();
    #[cfg(not(all(feature = "local", target_os = "linux")))]
    return Drivers::new();
}

/// A configuration as a person writes it or a program passes it: what is taken reads back as the same, in both forms.
pub fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let drivers = drivers();
    let draft = match check_text(&text, &drivers) {
        Ok(draft) => draft,
        Err(problems) => {
            assert!(problems.iter().next().is_some(), "it is refused and nothing is wrong with it");
            assert!(problems.iter().all(|p| p.line != Some(0) && p.column != Some(0)), "{problems}");
            return;
        }
    };
    let toml = draft.to_toml();
    let again =
        check_text(&toml, &drivers).unwrap_or_else(|e| panic!("what was written is refused: {e}\n{toml}"));
    assert_eq!(again, draft, "{toml}");
    let json =
        check_value(draft.to_json(), &drivers).unwrap_or_else(|e| panic!("as JSON it is refused: {e}"));
    assert_eq!(json, draft);
}

/// IDs, names, sizes and amounts as people type them: what is taken is shown as it is, and leaves no path or command.
pub fn words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    same(text, BoxId::parse, true);
    same(text, InstallId::parse, true);
    same(text, OperationId::parse, true);
    same(text, SnapshotId::parse, true);
    same(text, JobId::parse, true);
    same(text, ThreadId::parse, true);
    same(text, BackendId::parse, true);
    same(text, KindId::parse, true);
    same(text, BoxName::parse, true);
    same(text, RequestId::parse, false);
    same(text, Feature::parse, false);
    let _ = Wanted::parse(text);
    if let Ok(mib) = parse_mib(text) {
        assert!(mib > 0, "{text:?} is nothing");
        assert_eq!(parse_mib(&format!("{mib}MiB")).ok(), Some(mib));
    }
    if let Ok(amount) = text.parse::<Amount>() {
        assert_eq!(amount.to_string().parse::<Amount>().ok(), Some(amount), "{text:?}");
        assert_eq!(
            serde_json::to_value(amount).ok().and_then(|v| serde_json::from_value(v).ok()),
            Some(amount)
        );
    }
    if let Ok(SizeChoice::Custom(size)) = text.parse::<SizeChoice>() {
        let Size { cores, memory_mib, disk_mib } = size;
        assert!(cores > 0 && memory_mib > 0 && disk_mib != Some(0), "{text:?} is {size}");
        let disk = disk_mib.map(|mib| format!(",disk={mib}MiB")).unwrap_or_default();
        let written = format!("cores={cores},memory={memory_mib}MiB{disk}");
        assert_eq!(written.parse::<SizeChoice>().ok(), Some(SizeChoice::Custom(size)));
    }
}

/// Holds a kind of ID to what all promise. What is no name of its own, as a request's ID, may hold a slash or begin with `-`.
fn same<T: Display + Debug + PartialEq>(text: &str, parse: fn(String) -> Result<T>, in_paths: bool) {
    let Ok(id) = parse(text.to_owned()) else { return };
    assert_eq!(id.to_string(), text);
    assert!(!text.is_empty() && text.len() <= 128 && text.is_ascii(), "{text:?}");
    let odd = |b: u8| !b.is_ascii_alphanumeric() && !b"._:-/".contains(&b);
    assert!(!text.bytes().any(odd), "{text:?}");
    assert!(!in_paths || (!text.contains('/') && !text.starts_with('-')), "{text:?}");
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Plays every input that is kept for a target.
    #[test]
    fn every_input_that_was_kept_holds() {
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
