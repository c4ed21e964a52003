//! The record of a bucket's unnamed objects.
#![no_main]

use std::collections::HashSet;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/tree-bucket/src/garbage.rs"]
mod garbage;

use garbage::Garbage;

fuzz_target!(|input: &[u8]| {
    let record = Garbage::parse(input);
    assert!(Garbage::parse(&record.to_bytes()) == record, "the record round-trips");
    let present = ["packs/a".to_owned(), "packs/b".to_owned()];
    let next = record.next(&present, &HashSet::from(["packs/a".to_owned()]), 1000);
    let expired = next.expired(1000, Duration::from_secs(10));
    assert!(!expired.contains(&present[0]), "a named object stays");
    assert!(next.expired(1000, Duration::ZERO) == ["packs/b"], "an object that does not exist is not deleted");
});
