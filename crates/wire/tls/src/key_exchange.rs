//! Key exchange groups: X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem) before X25519 and the rest.

use std::fmt;

use rustls::crypto::ring::kx_group;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};
use zeroize::Zeroizing;

use crate::ml_kem_768::{CIPHERTEXT_LEN, Decapsulate, KEY_LEN, MlKem768, PORTABLE};

/// Puts the hybrid group first. X25519 must follow, because a client then sends shares for both and
/// a server without the first needs no second round trip.
pub(crate) fn offer(groups: &mut Vec<&'static dyn SupportedKxGroup>) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if graviola::util::is_cpu_supported() {
        groups.retain(|group| group.name() != NamedGroup::X25519);
        groups.splice(0..0, [&HYBRID_BY_VECTORS as &dyn SupportedKxGroup, &vectors::X25519]);
        return;
    }
    groups.insert(0, &PORTABLE_HYBRID);
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) static HYBRID_BY_VECTORS: Hybrid =
    Hybrid { classical: &vectors::X25519, post_quantum: &crate::ml_kem_768::VECTORS };

pub(crate) static PORTABLE_HYBRID: Hybrid =
    Hybrid { classical: kx_group::X25519, post_quantum: &PORTABLE };

/// Shares and secrets begin with those of ML-KEM.
pub(crate) struct Hybrid {
    classical: &'static dyn SupportedKxGroup,
    post_quantum: &'static MlKem768,
}

impl fmt::Debug for Hybrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hybrid").field(&self.name()).finish()
    }
}

impl SupportedKxGroup for Hybrid {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let classical = self.classical.start()?;
        let (decapsulate, key) = (self.post_quantum.generate)()?;
        let share = [&key, classical.pub_key()].concat();
        Ok(Box::new(ActiveHybrid { classical, decapsulate, share }))
    }

    fn start_and_complete(&self, client_share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (key, classical) = split::<KEY_LEN>(client_share)?;
        let classical = self.classical.start_and_complete(classical)?;
        let (secret, ciphertext) = (self.post_quantum.encapsulate)(key)?;
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: [&ciphertext, &classical.pub_key[..]].concat(),
            secret: join(&secret, &classical.secret),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

struct ActiveHybrid {
    classical: Box<dyn ActiveKeyExchange>,
    decapsulate: Decapsulate,
    share: Vec<u8>,
}

impl ActiveKeyExchange for ActiveHybrid {
    fn complete(self: Box<Self>, server_share: &[u8]) -> Result<SharedSecret, Error> {
        let (ciphertext, classical) = split::<CIPHERTEXT_LEN>(server_share)?;
        let classical = self.classical.complete(classical)?;
        Ok(join(&(self.decapsulate)(ciphertext), &classical))
    }

    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((self.classical.group(), self.classical.pub_key()))
    }

    fn complete_hybrid_component(
        self: Box<Self>,
        server_share: &[u8],
    ) -> Result<SharedSecret, Error> {
        self.classical.complete(server_share)
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }
}

/// X25519 refuses a share of another length.
fn split<const LEN: usize>(share: &[u8]) -> Result<(&[u8; LEN], &[u8]), Error> {
    share.split_first_chunk().ok_or_else(|| PeerMisbehaved::InvalidKeyShare.into())
}

fn join(post_quantum: &[u8; 32], classical: &SharedSecret) -> SharedSecret {
    let mut secret = Zeroizing::new([0; 64]);
    secret[..32].copy_from_slice(post_quantum);
    secret[32..].copy_from_slice(classical.secret_bytes());
    SharedSecret::from(&secret[..])
}

/// X25519 by the vectors that graviola needs.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vectors {
    use graviola::key_agreement::x25519::{PrivateKey, PublicKey};
    use rustls::crypto::GetRandomFailed;

    use super::*;

    #[derive(Debug)]
    pub(crate) struct X25519;

    struct ActiveX25519 {
        key: PrivateKey,
        share: [u8; 32],
    }

    impl SupportedKxGroup for X25519 {
        fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
            let key = PrivateKey::new_random().map_err(|_| Error::from(GetRandomFailed))?;
            let share = key.public_key().as_bytes();
            Ok(Box::new(ActiveX25519 { key, share }))
        }

        fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
            None
        }

        fn name(&self) -> NamedGroup {
            NamedGroup::X25519
        }
    }

    impl ActiveKeyExchange for ActiveX25519 {
        fn complete(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
            PublicKey::try_from_slice(share)
                .and_then(|public| self.key.diffie_hellman(&public))
                .map(|secret| SharedSecret::from(&secret.0[..]))
                .map_err(|_| PeerMisbehaved::InvalidKeyShare.into())
        }

        fn pub_key(&self) -> &[u8] {
            &self.share
        }

        fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
            None
        }

        fn group(&self) -> NamedGroup {
            NamedGroup::X25519
        }
    }
}
