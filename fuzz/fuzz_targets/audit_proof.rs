//! A decoded proof encodes to the same bytes, and an arbitrary proof is never valid.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_audit::proof::{Anchor, Proof};

fuzz_target!(|input: &[u8]| {
    if let Ok(proof) = Proof::decode(input) {
        assert_eq!(proof.encode(), input);
        assert!(proof.check(&Anchor::Key([7; 32])).is_err());
    }
});
