//! Request heads of HTTP at the replica.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vouch_replica::fuzzing::request_heads(input));
