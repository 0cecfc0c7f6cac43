//! A configuration, in TOML and in JSON.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bbbox_core::fuzzing::configuration(bytes));
