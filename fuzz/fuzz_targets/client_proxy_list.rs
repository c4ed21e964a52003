//! Fuzzes the result of a proxy auto-configuration script.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_tree_client::fuzzing;

fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input) {
        fuzzing::proxy_list(text);
    }
});
