//! Fuzzes what the gateway parses of a request: the target and the `Range` header.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &[u8], u64)| {
    let (target, range, size) = input;
    vouch_gateway::fuzzing::request(target, range, size);
});
