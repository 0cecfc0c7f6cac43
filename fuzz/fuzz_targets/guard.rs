//! What a box says to a copy.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bbbox_core::fuzzing::guard(bytes));
