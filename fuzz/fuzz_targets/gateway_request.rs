//! Requests to the gateway: the target and the `Range` header, one a line, and the size of the
//! file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut lines = input.splitn(3, |&byte| byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (target, range, size) = (line(), line(), line());
    let size = size.iter().take(8).fold(0, |size, &byte| size << 8 | u64::from(byte));
    if let Ok(target) = std::str::from_utf8(target) {
        vouch_gateway::fuzzing::request(target, range, size);
    }
});
