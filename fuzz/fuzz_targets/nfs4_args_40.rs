//! Fuzzes NFSv4.0 arguments.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| vouch_fuzz::arguments::check(input, |_| 0));
