//! Private keys of TLS certificates: PKCS#8 with the three forms of ML-DSA (RFC 9881). A key that is
//! taken can sign.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let provider = vouch_tls::provider();
    let Ok(key) = bytes.to_vec().try_into() else { return };
    let Ok(key) = provider.key_provider.load_private_key(key) else { return };
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let signer = key.choose_scheme(&schemes).expect("a scheme for each key");
    signer.sign(b"message").expect("a signature");
});
