//! A box's tar stream, as a copy unpacks it here.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bbbox_core::fuzzing::archive(bytes));
