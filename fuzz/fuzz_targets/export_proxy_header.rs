//! Headers of the PROXY protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vouch_export::fuzzing::proxy_header(input));
