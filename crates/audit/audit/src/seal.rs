//! Signed statements about all frames so far: one at a segment's end closes it, one inside limits
//! what a stolen key can rewrite, and a copy elsewhere reveals truncation.

use ed25519_dalek::VerifyingKey;

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
    /// Public half of the signing key.
    pub public: [u8; 32],
    /// Public half of the next signing key.
    pub next: [u8; 32],
    /// Ed25519 over [`Seal::signed`].
    pub signature: [u8; 64],
}

pub(crate) const SEAL_LEN: usize = 16 + 5 * 8 + 4 * 32 + 64;
/// Domain separation from all other signatures of Vouch.
const PREFIX: &[u8; 24] = b"vouch audit trail v1\0\0\0\0";

impl Seal {
    /// The signed bytes: all fields but the signature.
    pub fn signed(&self) -> Vec<u8> {
        let mut out = PREFIX.to_vec();
        self.fields(&mut out);
        out
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
        let mut out = Vec::with_capacity(SEAL_LEN);
        self.fields(&mut out);
        out.extend_from_slice(&self.signature);
        out
    }

    /// Does not check the signature.
    pub fn decode(body: &[u8]) -> Option<Seal> {
        let mut r = FieldReader(<&[u8; SEAL_LEN]>::try_from(body).ok()?);
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
        })
    }

    /// Checks strictly (a signature has one valid form), but not trust in the key.
    pub(crate) fn is_signed(&self) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(&self.signature);
        VerifyingKey::from_bytes(&self.public)
            .is_ok_and(|key| key.verify_strict(&self.signed(), &signature).is_ok())
    }
}
