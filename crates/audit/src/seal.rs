//! Seals: what the trail's key says of all that came before, and which key speaks next. A seal at a
//! segment's end closes it; one within bounds what a thief of the key could rewrite; one that was
//! copied elsewhere shows when a trail is cut.

use ed25519_dalek::VerifyingKey;

use crate::chain::Hash;
use crate::frame::Fields;

/// A signed statement about a trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The trail.
    pub trail: [u8; 16],
    /// The segment that it stands in.
    pub segment: u64,
    /// How many seals came before: the key that signed it was used for nothing else.
    pub epoch: u64,
    /// Sequence number that the next record will have.
    pub next_seq: u64,
    /// Leaves of the segment until here: its header and its records.
    pub leaves: u64,
    /// When, nanoseconds since 1970.
    pub time_ns: u64,
    /// The chain's value before the seal's own frame.
    pub chain: Hash,
    /// Root of the Merkle tree over the segment's leaves until here.
    pub root: Hash,
    /// Public half of the key that signed it.
    pub public: [u8; 32],
    /// Public half of the key that signs the next one.
    pub next: [u8; 32],
    /// Ed25519, over [`Seal::signed`].
    pub signature: [u8; 64],
}

/// Bytes of a seal.
pub const SEAL_LEN: usize = 16 + 5 * 8 + 4 * 32 + 64;
/// No other signature of this program is over bytes that begin so.
const PREFIX: &[u8; 24] = b"vouch audit trail v1\0\0\0\0";

impl Seal {
    /// The bytes that are signed.
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

    /// The body of its frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEAL_LEN);
        self.fields(&mut out);
        out.extend_from_slice(&self.signature);
        out
    }

    /// The seal with these bytes; its signature is not looked at.
    pub fn decode(body: &[u8]) -> Option<Seal> {
        let mut r = Fields(<&[u8; SEAL_LEN]>::try_from(body).ok()?);
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

    /// Whether the key that it names has signed it. Whether that key is to be believed is the
    /// caller's to know. Strict: no signature has two forms.
    pub fn is_signed(&self) -> bool {
        let signature = ed25519_dalek::Signature::from_bytes(&self.signature);
        VerifyingKey::from_bytes(&self.public).is_ok_and(|key| key.verify_strict(&self.signed(), &signature).is_ok())
    }
}
