//! Fuzzes NFSv4.1 and NFSv4.2 arguments.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| vouch_fuzz::arguments::check(input, |minor| 1 + minor % 2));
