//! Seals of audit trails: no bytes make a signature, alone or as the ML-DSA-44 half of a pair's.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use vouch_audit::keys::Ratchet;
use vouch_audit::proof::{Anchor, Proof, ProofError};
use vouch_audit::seal::Seal;

/// The Ed25519 half is valid, so that the other is verified.
static SEALED: LazyLock<Seal> = LazyLock::new(|| {
    let mut seal = Seal::decode(&[0; 248]).expect("the length of a seal");
    Ratchet::new([1; 16], &[2; 32]).seal(&mut seal);
    seal
});

fuzz_target!(|input: &[u8]| {
    if let Some(seal) = Seal::decode(input) {
        assert_eq!(seal.encode(), input);
        refuse(seal);
    }
    let mut seal = SEALED.clone();
    let signature = &mut seal.pair.as_mut().expect("a pair").signature;
    let len = input.len().min(signature.len());
    signature[..len].copy_from_slice(&input[..len]);
    if seal != *SEALED {
        refuse(seal);
    }
});

fn refuse(seal: Seal) {
    let proof = Proof { seals: vec![seal.clone()], index: 0, path: vec![], frame: vec![] };
    assert_eq!(proof.check(&Anchor::Checkpoint(Box::new(seal))), Err(ProofError::Anchor));
}
