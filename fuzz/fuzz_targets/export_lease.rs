//! The record of a shared state directory's lease.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vouch_export::fuzzing::lease_record(input));
