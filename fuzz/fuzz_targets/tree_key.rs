//! Keys and signatures of pairs: no bytes in place of the ML-DSA-44 halves make a signature.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use vouch_tree::key::{PublicKey, Purpose, SecretKey, Signature};
use vouch_xdr::{Reader, Writer, Xdr};

const BODY: &[u8] = b"body";

/// The Ed25519 halves are valid, so that the others are verified.
static HALVES: LazyLock<(Vec<u8>, Vec<u8>)> = LazyLock::new(|| {
    let key = SecretKey::from_seeds(&[1; 32], &[2; 32]);
    let mut w = Writer::new();
    key.sign(Purpose::Statement, BODY).encode(&mut w);
    (key.public().to_xdr()[..64].to_vec(), w.as_bytes()[..64].to_vec())
});

fuzz_target!(|input: &[u8]| {
    decode(input);
    let (key, signature) = &*HALVES;
    let (public, rest) = input.split_at(input.len().min(1312));
    decode(&[&key[..], public, &signature[..], rest].concat());
});

fn decode(input: &[u8]) {
    let mut r = Reader::new(input);
    let Ok(key) = PublicKey::decode(&mut r) else { return };
    let _ = key.hostid();
    let Ok(signature) = Signature::decode(&mut r, &key) else { return };
    let mut w = Writer::new();
    key.encode(&mut w);
    signature.encode(&mut w);
    assert!(input.starts_with(w.as_bytes()));
    assert!(!key.is_pair() || !key.verify(Purpose::Statement, BODY, &signature));
}
