//! IDs, names, sizes and amounts.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bbbox_core::fuzzing::words(bytes));
