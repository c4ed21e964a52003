//! Keys of seals: pairs of Ed25519 and ML-DSA-44, of which both sign. Each key signs one seal, which
//! names the next key, and is then wiped. A stolen key cannot forge earlier seals (Bellare and Yee, 1997).

use ed25519_dalek::{Signer as _, SigningKey};
use ml_dsa::{Keypair as _, MlDsa44};
use sha2::{Digest as _, Sha256};
use zeroize::{Zeroize as _, Zeroizing};

use crate::seal::{PairPart, Seal, pair_hash};

/// The key of one epoch, wiped when dropped.
pub struct Ratchet {
    trail: [u8; 16],
    epoch: u64,
    seed: Zeroizing<[u8; 32]>,
    /// Trails of earlier versions have Ed25519 keys until their next seal.
    is_pair: bool,
    public: [u8; 32],
}

pub(crate) const KEY_LEN: usize = 8 + 16 + 8 + 32 + 32;
const CLASSIC_MAGIC: &[u8; 8] = b"VOUCHAK1";
const PAIR_MAGIC: &[u8; 8] = b"VOUCHAK2";
const STEP: &[u8; 24] = b"vouch audit ratchet v1\0\0";
const ML_DSA_44_STEP: &[u8; 24] = b"vouch audit ML-DSA-44 v1";

impl Ratchet {
    /// Creates a trail's first key. `trail` and `seed` come from a secure random generator.
    pub fn new(trail: [u8; 16], seed: &[u8; 32]) -> Ratchet {
        Ratchet::of(trail, 0, Zeroizing::new(*seed), true)
    }

    fn of(trail: [u8; 16], epoch: u64, seed: Zeroizing<[u8; 32]>, is_pair: bool) -> Ratchet {
        let mut ratchet = Ratchet { trail, epoch, seed, is_pair, public: [0; 32] };
        let ed25519 = ratchet.ed25519().verifying_key().to_bytes();
        ratchet.public = match ratchet.ml_dsa_44() {
            Some(key) => pair_hash(&ed25519, &key.verifying_key().encode().into()),
            None => ed25519,
        };
        ratchet
    }

    /// The trail's random id.
    pub fn trail(&self) -> [u8; 16] {
        self.trail
    }

    /// Number of keys before this one.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// For verification: the hash of both keys, or an Ed25519 key alone.
    pub fn public(&self) -> [u8; 32] {
        self.public
    }

    fn ed25519(&self) -> SigningKey {
        SigningKey::from_bytes(&self.seed)
    }

    fn ml_dsa_44(&self) -> Option<ml_dsa::SigningKey<MlDsa44>> {
        self.is_pair.then(|| ml_dsa::SigningKey::from_seed((&*self.derive(ML_DSA_44_STEP)).into()))
    }

    fn derive(&self, purpose: &[u8; 24]) -> Zeroizing<[u8; 32]> {
        let hasher = Sha256::new().chain_update(purpose).chain_update(self.trail);
        let mut hash: [u8; 32] = hasher.chain_update(*self.seed).finalize().into();
        let seed = Zeroizing::new(hash);
        hash.zeroize();
        seed
    }

    /// Always a pair. The derivation is one-way.
    #[must_use]
    pub fn next(&self) -> Ratchet {
        Ratchet::of(self.trail, self.epoch + 1, self.derive(STEP), true)
    }

    /// Fills in the key's fields and signs. A key signs once; then use [`Ratchet::next`].
    pub fn seal(&self, seal: &mut Seal) {
        let (ed25519, ml_dsa_44) = (self.ed25519(), self.ml_dsa_44());
        seal.trail = self.trail;
        seal.epoch = self.epoch;
        seal.public = self.public();
        seal.next = self.next().public();
        let signed = seal.signed();
        seal.signature = ed25519.sign(&signed).to_bytes();
        seal.pair = ml_dsa_44.map(|key| {
            let signature = key
                .expanded_key()
                .sign_deterministic(&signed, &[])
                .expect("each of 16,000 attempts succeeds with a probability of a quarter");
            Box::new(PairPart {
                ed25519: ed25519.verifying_key().to_bytes(),
                ml_dsa_44: key.verifying_key().encode().into(),
                signature: signature.encode().into(),
            })
        });
        debug_assert!(seal.is_signed(), "the signature just made is valid");
    }

    /// The content of a key file.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut out = Zeroizing::new(Vec::with_capacity(KEY_LEN));
        out.extend_from_slice(if self.is_pair { PAIR_MAGIC } else { CLASSIC_MAGIC });
        out.extend_from_slice(&self.trail);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&*self.seed);
        out.extend_from_slice(&self.public());
        out
    }

    /// `None` if the public half does not match the seed.
    pub fn decode(bytes: &[u8]) -> Option<Ratchet> {
        let bytes = <&[u8; KEY_LEN]>::try_from(bytes).ok()?;
        let mut r = crate::frame::FieldReader(bytes);
        let is_pair = match &r.take() {
            PAIR_MAGIC => true,
            CLASSIC_MAGIC => false,
            _ => return None,
        };
        let (trail, epoch, seed) = (r.take(), r.u64(), Zeroizing::new(r.take()));
        let ratchet = Ratchet::of(trail, epoch, seed, is_pair);
        (ratchet.public() == r.take()).then_some(ratchet)
    }
}
