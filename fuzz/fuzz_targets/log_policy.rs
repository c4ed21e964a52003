//! Policies: none panics, and none without a log is satisfied by a note without signatures.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::merkle::Hash;
use vouch_log::policy::Policy;

fuzz_target!(|input: &[u8]| {
    let Ok(policy) = Policy::parse(input) else { return };
    let unsigned = SignedCheckpoint::unsigned(&Checkpoint::new("o", 1, Hash([1; 32])));
    assert!(policy.check(&unsigned.expect("a checkpoint"), &[], 1).is_err());
    // A note of the input's own, if it has one after an empty line.
    if let Some(at) = input.windows(2).position(|pair| pair == b"\n\n")
        && let Ok(signed) = SignedCheckpoint::parse(&input[at + 2..])
    {
        let _ = policy.check(&signed, &[], 1_800_000_000);
    }
});
