//! Each key signs one seal, which names the next key, and is then wiped. A stolen key cannot forge
//! earlier seals (Bellare and Yee, 1997).

use ed25519_dalek::{Signer as _, SigningKey};
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize as _, Zeroizing};

use crate::seal::Seal;

/// The key of one epoch, wiped when dropped.
pub struct Ratchet {
    trail: [u8; 16],
    epoch: u64,
    seed: Zeroizing<[u8; 32]>,
}

pub(crate) const KEY_LEN: usize = 8 + 16 + 8 + 32 + 32;
const KEY_MAGIC: &[u8; 8] = b"VOUCHAK1";
const STEP: &[u8; 24] = b"vouch audit ratchet v1\0\0";

impl Ratchet {
    /// Creates a trail's first key. `trail` and `seed` come from a secure random generator.
    pub fn new(trail: [u8; 16], seed: &[u8; 32]) -> Ratchet {
        Ratchet { trail, epoch: 0, seed: Zeroizing::new(*seed) }
    }

    /// The trail's random id.
    pub fn trail(&self) -> [u8; 16] {
        self.trail
    }

    /// Number of keys before this one.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Ed25519, for verification.
    pub fn public(&self) -> [u8; 32] {
        SigningKey::from_bytes(&self.seed).verifying_key().to_bytes()
    }

    /// The derivation is one-way.
    #[must_use]
    pub fn next(&self) -> Ratchet {
        let mut seed: [u8; 32] = Sha256::new()
            .chain_update(STEP)
            .chain_update(self.trail)
            .chain_update(*self.seed)
            .finalize()
            .into();
        let next = Ratchet { trail: self.trail, epoch: self.epoch + 1, seed: Zeroizing::new(seed) };
        seed.zeroize();
        next
    }

    /// Fills in the key's fields and signs. A key signs once; then use [`Ratchet::next`].
    pub fn seal(&self, seal: &mut Seal) {
        let key = SigningKey::from_bytes(&self.seed);
        seal.trail = self.trail;
        seal.epoch = self.epoch;
        seal.public = key.verifying_key().to_bytes();
        seal.next = self.next().public();
        seal.signature = key.sign(&seal.signed()).to_bytes();
        debug_assert!(seal.is_signed(), "the signature just made is valid");
    }

    /// The content of a key file.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(KEY_LEN));
        out.extend_from_slice(KEY_MAGIC);
        out.extend_from_slice(&self.trail);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&*self.seed);
        out.extend_from_slice(&self.public());
        out
    }

    /// `None` if the public half does not match the seed.
    pub fn decode(bytes: &[u8]) -> Option<Ratchet> {
        let bytes = <&[u8; KEY_LEN]>::try_from(bytes).ok()?;
        let mut r = crate::frame::FieldReader(bytes.strip_prefix(KEY_MAGIC)?);
        let (trail, epoch, seed) = (r.take(), r.u64(), Zeroizing::new(r.take()));
        let ratchet = Ratchet { trail, epoch, seed };
        (ratchet.public() == r.take()).then_some(ratchet)
    }
}
