//! Fuzzes the record of a shared state directory's lease, which is included by path.
#![no_main]
#![allow(dead_code, unreachable_pub)]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/export/service/src/lease/record.rs"]
mod record;

use record::LeaseRecord;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Some(record) = LeaseRecord::parse(text) else { return };
    // A record has one form, and the next head can claim the epoch after it.
    assert_eq!(record.to_text(), text);
    assert!(record.epoch.0.checked_add(1).is_some() && record.renewal.checked_add(1).is_some());
    assert!(record::is_head_name(&record.head) && record.before.iter().all(|name| record::is_head_name(name)));
});
