//! The frames of a process's output.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bbbox_docker::fuzzing::frames(bytes));
