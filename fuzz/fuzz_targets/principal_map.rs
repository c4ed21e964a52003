//! The map from Kerberos principals to accounts.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vouch_export::fuzzing::principal_map(input));
