//! Proofs of audit records: bytes that are one are written the same, and none that was invented is believed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_audit::proof::{Anchor, Proof};

fuzz_target!(|input: &[u8]| {
    if let Ok(proof) = Proof::decode(input) {
        assert_eq!(proof.encode(), input);
        assert!(proof.check(&Anchor::Key([7; 32])).is_err());
    }
});
