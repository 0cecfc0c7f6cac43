//! What the reference backend reads from its folders and from `/proc`, for [`crate::fuzzing`].

use super::map::{Keeper, Record, Stat, memory_mib};

/// A guest's record, its keeper's line, and what the machine says of a process and of its memory.
pub fn machine(bytes: &[u8]) {
    if let Ok(record) = serde_json::from_slice::<Record>(bytes) {
        let text = serde_json::to_vec(&record).unwrap_or_else(|e| panic!("{record:?} is not written: {e}"));
        assert_eq!(serde_json::from_slice::<Record>(&text).ok().as_ref(), Some(&record));
        assert_eq!(record.held().guest, record.guest());
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(keeper) = text.parse::<Keeper>() {
        // A line without its end is still being written, so only a whole one is an identity.
        assert!(keeper.pid > 0 && !keeper.boot.contains(['\n', ' ']), "{keeper:?}");
        assert_eq!(
            text.lines().next().and_then(|line| format!("{line}\n").parse::<Keeper>().ok()).map(|k| k.pid),
            Some(keeper.pid)
        );
    }
    if let Ok(stat) = text.parse::<Stat>() {
        assert!(text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+'), "{stat:?}");
    }
    let _ = memory_mib(text);
}
