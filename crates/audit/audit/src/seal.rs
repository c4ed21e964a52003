//! Signed statements about all frames so far: one at a segment's end closes it, one inside limits
//! what a stolen key can rewrite, and a copy elsewhere reveals truncation.

use ed25519_dalek::VerifyingKey;
use ml_dsa::MlDsa44;
use sha2::{Digest as _, Sha256};

use crate::chain::Hash;
use crate::frame::FieldReader;

/// A signature over a trail's frames so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The trail's id.
    pub trail: [u8; 16],
    /// Number of the segment, from 1.
    pub segment: u64,
    /// Number of seals before this one.
    pub epoch: u64,
    /// Sequence number of the next record.
    pub next_seq: u64,
    /// Leaves of the segment so far: header and records.
    pub leaves: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The chain value before the seal's own frame.
    pub chain: Hash,
    /// Root of the Merkle tree over the leaves so far.
    pub root: Hash,
    /// The signing key: the hash of a pair, or an Ed25519 key alone.
    pub public: [u8; 32],
    /// The next signing key, in the same form.
    pub next: [u8; 32],
    /// Ed25519 over [`Seal::signed`].
    pub signature: [u8; 64],
    /// If the key is a pair.
    pub pair: Option<Box<PairPart>>,
}

/// The keys of a pair and the second signature: both signatures must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairPart {
    /// Public half of the Ed25519 key.
    pub ed25519: [u8; 32],
    /// Public half of the ML-DSA-44 key (FIPS 204).
    pub ml_dsa_44: [u8; ML_DSA_44_PUBLIC_LEN],
    /// ML-DSA-44 over [`Seal::signed`].
    pub signature: [u8; ML_DSA_44_SIGNATURE_LEN],
}

const ML_DSA_44_PUBLIC_LEN: usize = 1312;
const ML_DSA_44_SIGNATURE_LEN: usize = 2420;
/// Length of the signed fields of a seal, in bytes.
pub const STATEMENT_LEN: usize = 16 + 5 * 8 + 4 * 32;
const CLASSIC_LEN: usize = STATEMENT_LEN + 64;
const PAIR_LEN: usize = CLASSIC_LEN + 32 + ML_DSA_44_PUBLIC_LEN + ML_DSA_44_SIGNATURE_LEN;
/// Lengths of a seal by a pair and by an Ed25519 key.
pub(crate) const SEAL_LENS: [usize; 2] = [PAIR_LEN, CLASSIC_LEN];
/// Domain separation from all other signatures of Vouch.
const PREFIX: &[u8; 24] = b"vouch audit trail v1\0\0\0\0";
const PAIR_PREFIX: &[u8; 24] = b"vouch audit pair v1\0\0\0\0\0";

impl Seal {
    /// The signed bytes: all fields but the signature.
    pub fn signed(&self) -> Vec<u8> {
        let mut out = PREFIX.to_vec();
        self.fields(&mut out);
        out
    }

    /// The signed fields, for logs outside of the trail.
    pub fn statement(&self) -> [u8; STATEMENT_LEN] {
        let mut out = Vec::with_capacity(STATEMENT_LEN);
        self.fields(&mut out);
        out.try_into().expect("the fields have one length")
    }

    fn fields(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.trail);
        for number in [self.segment, self.epoch, self.next_seq, self.leaves, self.time_ns] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for hash in [&self.chain, &self.root, &self.public, &self.next] {
            out.extend_from_slice(hash);
        }
    }

    /// The body of a seal's frame, and the content of a checkpoint file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAIR_LEN);
        self.fields(&mut out);
        out.extend_from_slice(&self.signature);
        if let Some(pair) = &self.pair {
            out.extend_from_slice(&pair.ed25519);
            out.extend_from_slice(&pair.ml_dsa_44);
            out.extend_from_slice(&pair.signature);
        }
        out
    }

    pub(crate) const fn encoded_len(&self) -> usize {
        if self.pair.is_some() { PAIR_LEN } else { CLASSIC_LEN }
    }

    /// Does not check the signature.
    pub fn decode(body: &[u8]) -> Option<Seal> {
        if !SEAL_LENS.contains(&body.len()) {
            return None;
        }
        let mut r = FieldReader(body);
        Some(Seal {
            trail: r.take(),
            segment: r.u64(),
            epoch: r.u64(),
            next_seq: r.u64(),
            leaves: r.u64(),
            time_ns: r.u64(),
            chain: r.take(),
            root: r.take(),
            public: r.take(),
            next: r.take(),
            signature: r.take(),
            pair: (body.len() == PAIR_LEN).then(|| {
                Box::new(PairPart { ed25519: r.take(), ml_dsa_44: r.take(), signature: r.take() })
            }),
        })
    }

    /// Checks strictly (a signature has one valid form), but not trust in the key.
    pub fn is_signed(&self) -> bool {
        let signed = self.signed();
        let signature = ed25519_dalek::Signature::from_bytes(&self.signature);
        let has_ed25519 = |key: &[u8; 32]| {
            VerifyingKey::from_bytes(key)
                .is_ok_and(|key| key.verify_strict(&signed, &signature).is_ok())
        };
        match &self.pair {
            None => has_ed25519(&self.public),
            Some(pair) => {
                self.public == pair_hash(&pair.ed25519, &pair.ml_dsa_44)
                    && has_ed25519(&pair.ed25519)
                    && pair.has_ml_dsa_44(&signed)
            }
        }
    }
}

impl PairPart {
    fn has_ml_dsa_44(&self, signed: &[u8]) -> bool {
        ml_dsa::Signature::<MlDsa44>::try_from(&self.signature[..]).is_ok_and(|signature| {
            ml_dsa::VerifyingKey::<MlDsa44>::decode((&self.ml_dsa_44).into()).verify_with_context(
                signed,
                &[],
                &signature,
            )
        })
    }
}

/// Stands for a pair where an Ed25519 key stood. The least counter is taken that makes the hash no
/// point of the curve, so that no Ed25519 key is ever found that has these bytes.
pub(crate) fn pair_hash(ed25519: &[u8; 32], ml_dsa_44: &[u8; ML_DSA_44_PUBLIC_LEN]) -> Hash {
    let keys =
        Sha256::new().chain_update(PAIR_PREFIX).chain_update(ed25519).chain_update(ml_dsa_44);
    (0..=u8::MAX)
        .map(|counter| Hash::from(keys.clone().chain_update([counter]).finalize()))
        .find(|hash| VerifyingKey::from_bytes(hash).is_err())
        .expect("every second hash is no point of the curve")
}
