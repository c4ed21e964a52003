//! Entries, origins and key files of logs of audit trails.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_log::trail::{
    TrailSigners, parse_seal_entry, parse_trail_origin, seal_entry, trail_origin,
};

fuzz_target!(|input: &[u8]| {
    if let Some(seal) = parse_seal_entry(input) {
        assert_eq!(seal_entry(seal), input);
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(log) = parse_trail_origin(text) {
        assert_eq!(trail_origin(&log), text);
    }
    if let Some(signers) = TrailSigners::parse(text) {
        assert!(signers.to_text().trim_end() == text.trim_end());
    }
});
