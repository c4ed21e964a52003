//! NIST's published vectors for the functions of ML-DSA-44 behind keys of pairs.

use std::collections::HashMap;

use data_encoding::HEXLOWER;
use libcrux_ml_dsa::ml_dsa_44::{self, MLDSA44Signature, MLDSA44VerificationKey};
use ml_dsa::{ExpandedSigningKey, Keypair as _, MlDsa44, Signature, SigningKey, VerifyingKey};

#[test]
fn ml_dsa_44_matches_vectors_of_nist() {
    let mut counts = HashMap::new();
    let mut public = Vec::new();
    for line in include_str!("ml-dsa-44.txt").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let bytes = |index: usize| HEXLOWER.decode(fields[index].as_bytes()).unwrap();
        *counts.entry(fields[0]).or_insert(0) += 1;
        match fields[0] {
            "keyGen" => {
                let seed: [u8; 32] = bytes(1).try_into().unwrap();
                let key = SigningKey::<MlDsa44>::from_seed(&seed.into());
                assert_eq!(key.verifying_key().encode().to_vec(), bytes(2));
            }
            "sigGen" => {
                let encoded = bytes(1).as_slice().try_into().unwrap();
                #[expect(deprecated, reason = "the vectors have expanded keys")]
                let key = ExpandedSigningKey::<MlDsa44>::from_expanded(&encoded);
                let signature = key.sign_internal(&[&bytes(2)], &[0; 32].into());
                assert_eq!(signature.encode().to_vec(), bytes(3));
            }
            "sigVer" => {
                if fields[1] != "." {
                    public = bytes(1);
                }
                let key = VerifyingKey::<MlDsa44>::decode(&public.as_slice().try_into().unwrap());
                let is_valid = Signature::<MlDsa44>::try_from(&bytes(3)[..])
                    .is_ok_and(|signature| key.verify_internal(&bytes(2), &signature));
                assert_eq!(is_valid.to_string(), fields[4], "{}", fields[2]);
                // The one that verifies trees. A signature of another length is not given to it.
                let key = MLDSA44VerificationKey::new(public.as_slice().try_into().unwrap());
                let is_valid = bytes(3).as_slice().try_into().is_ok_and(|signature| {
                    let signature = MLDSA44Signature::new(signature);
                    ml_dsa_44::verify_internal(&key, &bytes(2), &signature).is_ok()
                });
                assert_eq!(is_valid.to_string(), fields[4], "{}", fields[2]);
            }
            other => panic!("unknown case {other}"),
        }
    }
    assert_eq!(counts, HashMap::from([("keyGen", 3), ("sigGen", 1), ("sigVer", 6)]));
}
