//! Requests to witnesses and their replies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_log::witness::{AddCheckpoint, Reply};

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = AddCheckpoint::parse(input) {
        assert_eq!(request.to_text().as_bytes(), input);
    }
    for status in [200, 409, 404, 500] {
        if let Ok(Reply::Conflict { size }) = Reply::parse(status, "text/x.tlog.size", input) {
            assert_eq!(format!("{size}\n").as_bytes(), input);
        }
    }
});
