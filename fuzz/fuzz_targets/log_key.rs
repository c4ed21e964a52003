//! Keys and signatures of logs: every text decodes to what writes it, or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vouch_log::key::{Algorithm, Signer, VerifierKey};
use vouch_log::note::NoteSignature;

fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input) {
        if let Ok(key) = VerifierKey::parse(text) {
            assert_eq!(key.to_text(), text);
        }
        if let Ok(signer) = Signer::parse(text) {
            assert_eq!(signer.to_text().as_str(), text);
        }
    }
    // Public keys and signatures of any bytes: ML-DSA-44 takes every key of its length.
    let (public, bytes) = input.split_at(input.len().min(1312));
    for algorithm in
        [Algorithm::Ed25519, Algorithm::CosignatureEd25519, Algorithm::CosignatureMlDsa44]
    {
        let len = if algorithm == Algorithm::CosignatureMlDsa44 { 1312 } else { 32 };
        let public = &public[..public.len().min(len)];
        let Ok(key) = VerifierKey::new("x", algorithm, public) else { continue };
        assert_eq!(key.public_bytes(), public);
        let head = vouch_log::checkpoint::Checkpoint::new("o", 1, vouch_log::merkle::Hash([1; 32]));
        let mut note = vouch_log::note::SignedNote::unsigned(head.text()).expect("a checkpoint");
        let signature = NoteSignature { name: "x".into(), key_id: key.id(), bytes: bytes.to_vec() };
        note.add(signature).expect("the first signature");
        assert!(note.verify(&[&key]).is_err(), "a signature by chance");
    }
});
