//! A decoded record encodes and decodes to the same value, and neither text form breaks its lines.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_audit::{Record, json, text};

fuzz_target!(|input: &[u8]| {
    let mut scratch = Vec::new();
    let Ok(record) = Record::decode(input, &mut scratch) else { return };
    let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
    record.encode(&mut bytes);
    // Fields above their limits are truncated when encoded.
    if bytes.len() == input.len() {
        assert_eq!(Record::decode(&bytes, &mut scratch).as_ref(), Ok(&record));
    }
    let mut out = String::new();
    json::write(&record, Some([1; 16]), &mut out);
    assert_eq!(out.lines().count(), 1);
    out.clear();
    text::write(&record, &mut out);
});
