//! What a box's runner says.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bbbox_core::fuzzing::runner(bytes));
