//! What a Docker Engine answers about containers, volumes and itself.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bbbox_docker::fuzzing::answers(bytes));
