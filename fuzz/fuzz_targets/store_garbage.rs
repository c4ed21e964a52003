//! The record of files that no manifest names any more.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use vouch_tree_store::Garbage;

fuzz_target!(|input: &[u8]| {
    let record = Garbage::parse(input);
    assert!(Garbage::parse(&record.to_bytes()) == record, "the record round-trips");
    let next = record.next(["packs/b".to_owned()], 1000);
    assert!(
        next.len() == 1 && next.expired(1000, Duration::ZERO) == ["packs/b"],
        "only unnamed files are listed"
    );
});
