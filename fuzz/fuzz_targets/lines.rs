//! Lines that a Docker Engine and its host print.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bbbox_docker::fuzzing::lines(bytes));
