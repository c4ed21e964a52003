//! One [`CryptoProvider`] for every TLS connection of the program: ring, with X25519MLKEM768 as the
//! first key exchange, and with ML-DSA certificates and keys.
//!
//! Does no I/O. It reads no clock.

#![warn(missing_docs)]

mod key_exchange;
mod ml_dsa_key;
mod ml_dsa_verifier;
mod ml_kem_768;

use std::sync::{Arc, LazyLock};

use rustls::crypto::{CryptoProvider, KeyProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;

/// Give it to each configuration, so that no other crate chooses.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(build()));
    PROVIDER.clone()
}

/// For libraries that take the process's provider. Later calls change nothing.
pub fn install_provider() {
    let _ = CryptoProvider::clone(&provider()).install_default();
}

fn build() -> CryptoProvider {
    let mut provider = ring::default_provider();
    key_exchange::offer(&mut provider.kx_groups);
    provider.signature_verification_algorithms =
        with_ml_dsa(&provider.signature_verification_algorithms);
    provider.key_provider = &Keys;
    provider
}

fn with_ml_dsa(others: &WebPkiSupportedAlgorithms) -> WebPkiSupportedAlgorithms {
    let ml_dsa = &ml_dsa_verifier::ALGORITHMS;
    WebPkiSupportedAlgorithms {
        all: [others.all, &ml_dsa.map(|(_, algorithm)| algorithm[0])].concat().leak(),
        mapping: [others.mapping, &ml_dsa[..]].concat().leak(),
    }
}

#[derive(Debug)]
struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(
        &self,
        key: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        match &key {
            PrivateKeyDer::Pkcs8(der) => ml_dsa_key::load(der.secret_pkcs8_der()),
            _ => None,
        }
        .unwrap_or_else(|| ring::default_provider().key_provider.load_private_key(key))
    }
}

#[cfg(test)]
mod tests;
