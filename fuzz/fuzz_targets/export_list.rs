//! Lists of exports in the syntax of exports(5).
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vouch_export::fuzzing::export_list(input));
