//! The reference backend's records, and what the machine says of its processes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bbbox_core::fuzzing::machine(bytes));
