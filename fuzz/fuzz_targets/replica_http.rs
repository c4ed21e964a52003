//! Request heads of HTTP at the replica.
#![no_main]
#![allow(dead_code, unreachable_pub)]

use libfuzzer_sys::fuzz_target;

mod limits {
    pub(crate) const HEAD_LEN_MAX: usize = 8 * 1024;
}

#[path = "../../crates/tree/replica/src/http/head.rs"]
mod head;

fuzz_target!(|input: &[u8]| {
    let mut reader = head::HeadReader::default();
    let mut rest = input;
    while let Ok(Some(bytes)) = reader.next(&mut rest) {
        assert!(bytes.len() <= limits::HEAD_LEN_MAX);
        let Some(request) = head::RequestHead::parse(&bytes) else { continue };
        assert!(request.path.starts_with('/'));
        let _ = request.has_current("\"tag\"");
        if let head::RequestedRange::Part(range) = request.range_of(1000, "\"tag\"") {
            assert!(range.start < range.end && range.end <= 1000);
        }
    }
});
