//! Proofs of logs: what decodes is what was written, byte by byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_log::merkle::Hash;
use vouch_log::policy::Policy;
use vouch_log::proof::TlogProof;

fuzz_target!(|input: &[u8]| {
    let Ok(proof) = TlogProof::parse(input) else { return };
    assert_eq!(proof.to_text().as_bytes(), input);
    let policy = Policy::parse(b"quorum none\n").expect("the shortest policy");
    assert!(proof.verify(Hash([1; 32]), &policy, &[], 1).is_err());
});
