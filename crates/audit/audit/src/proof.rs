//! Inclusion proofs prove one record to a verifier without a copy of the trail or trust in its
//! keeper. See docs/formats/audit.md.

use crate::Record;
use crate::chain::{Hash, TAG_LEN, leaf_hash};
use crate::frame::{BODY_LEN_MAX, FieldReader, HEAD_LEN, Kind, parse};
use crate::merkle::root_from_path;
use crate::record::seq_and_time;
use crate::seal::{SEAL_LENS, Seal};

/// Evidence that a trail holds one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// From the first seal that the anchor authenticates to the one over the record.
    pub seals: Vec<Seal>,
    /// Index among the leaves of the record's segment.
    pub index: u64,
    /// Sibling hashes from the leaf to the root.
    pub path: Vec<Hash>,
    /// Head and body of the record's frame.
    pub frame: Vec<u8>,
}

/// What the verifier trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The trail's first public key.
    Key([u8; 32]),
    /// A checkpoint stored outside the machine.
    Checkpoint(Box<Seal>),
}

/// Why a proof proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum ProofError {
    #[error("not a proof of an audit record, or damaged")]
    Malformed,
    #[error("longer than {PROOF_LEN_MAX} bytes, the limit of a proof")]
    Length,
    #[error("the trusted key or checkpoint does not authenticate the proof's first seal")]
    Anchor,
    #[error("seal {0} is not signed by the key that the previous seal names")]
    Seal(u64),
    #[error("the record is not covered by the seal")]
    Record,
}

const PROOF_MAGIC: &[u8; 8] = b"VOUCHPF1";
/// Each seal is preceded by its length: seals of pairs are longer.
const PAIR_PROOF_MAGIC: &[u8; 8] = b"VOUCHPF2";
/// Bytes of a seal's length.
pub(crate) const SEAL_PREFIX_LEN: usize = 4;
const PATH_LEN_MAX: usize = 64;
/// Bytes of a proof at most. A verifier holds the file and its seals in memory: twice this.
pub const PROOF_LEN_MAX: usize = 256 << 20;
/// Bytes of all seals of a proof, with their lengths: what the other fields leave at most.
pub(crate) const SEALS_LEN_MAX: usize =
    PROOF_LEN_MAX - 24 - PATH_LEN_MAX * size_of::<Hash>() - HEAD_LEN - BODY_LEN_MAX;

impl Proof {
    /// The content of a proof file.
    pub fn encode(&self) -> Vec<u8> {
        let has_pairs = self.seals.iter().any(|seal| seal.pair.is_some());
        let mut out = if has_pairs { PAIR_PROOF_MAGIC } else { PROOF_MAGIC }.to_vec();
        out.extend_from_slice(&(self.seals.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.path.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        for seal in self.seals.iter().map(Seal::encode) {
            if has_pairs {
                out.extend_from_slice(&(seal.len() as u32).to_le_bytes());
            }
            out.extend_from_slice(&seal);
        }
        self.path.iter().for_each(|hash| out.extend_from_slice(hash));
        out.extend_from_slice(&self.frame);
        out
    }

    /// Checks the form only.
    pub fn decode(bytes: &[u8]) -> Result<Proof, ProofError> {
        if bytes.len() > PROOF_LEN_MAX {
            return Err(ProofError::Length);
        }
        let (magic, rest) = bytes.split_first_chunk::<8>().ok_or(ProofError::Malformed)?;
        let has_pairs = magic == PAIR_PROOF_MAGIC;
        let (head, mut rest) = rest
            .split_at_checked(16)
            .filter(|_| has_pairs || magic == PROOF_MAGIC)
            .ok_or(ProofError::Malformed)?;
        let mut r = FieldReader(head);
        let seal_count = u32::from_le_bytes(r.take()) as usize;
        let path_len = u32::from_le_bytes(r.take()) as usize;
        let index = r.u64();
        let [_, classic_len] = SEAL_LENS;
        let seals_max = rest.len() / classic_len;
        if seal_count == 0 || seal_count > seals_max || path_len > PATH_LEN_MAX {
            return Err(ProofError::Malformed);
        }
        let mut seals = Vec::with_capacity(seal_count);
        for _ in 0..seal_count {
            let mut len = classic_len;
            if has_pairs {
                let (prefix, after) = rest.split_first_chunk().ok_or(ProofError::Malformed)?;
                (len, rest) = (u32::from_le_bytes(*prefix) as usize, after);
            }
            let (seal, after) = rest.split_at_checked(len).ok_or(ProofError::Malformed)?;
            seals.push(Seal::decode(seal).ok_or(ProofError::Malformed)?);
            rest = after;
        }
        if has_pairs != seals.iter().any(|seal| seal.pair.is_some()) {
            return Err(ProofError::Malformed);
        }
        let (path, frame) =
            rest.split_at_checked(path_len * size_of::<Hash>()).ok_or(ProofError::Malformed)?;
        let path: &[Hash] = path.as_chunks().0;
        if frame.len() > HEAD_LEN + BODY_LEN_MAX {
            return Err(ProofError::Malformed);
        }
        Ok(Proof { seals, index, path: path.to_vec(), frame: frame.to_vec() })
    }

    /// Verifies the signatures of all seals. Returns the record's bytes.
    pub fn check(&self, anchor: &Anchor) -> Result<&[u8], ProofError> {
        let first = self.seals.first().ok_or(ProofError::Malformed)?;
        let last = self.seals.last().ok_or(ProofError::Malformed)?;
        let is_anchored = match anchor {
            Anchor::Key(public) => first.epoch == 0 && first.public == *public,
            Anchor::Checkpoint(seal) => {
                seal.is_signed()
                    && (first == &**seal
                        || (Some(first.epoch) == seal.epoch.checked_add(1)
                            && first.public == seal.next
                            && first.trail == seal.trail))
            }
        };
        if !is_anchored {
            return Err(ProofError::Anchor);
        }
        for pair in self.seals.windows(2) {
            let [before, seal] = pair else { continue };
            if Some(seal.epoch) != before.epoch.checked_add(1)
                || seal.public != before.next
                || seal.trail != before.trail
            {
                return Err(ProofError::Seal(seal.epoch));
            }
        }
        if let Some(seal) = self.seals.iter().find(|seal| !seal.is_signed()) {
            return Err(ProofError::Seal(seal.epoch));
        }
        if root_from_path(leaf_hash(&self.frame), self.index, last.leaves, &self.path)
            != Some(last.root)
        {
            return Err(ProofError::Record);
        }
        let body = self.body().ok_or(ProofError::Record)?;
        // Leaf 0 is the header, and the records follow without gaps.
        let (seq, _) = seq_and_time(body).ok_or(ProofError::Record)?;
        let is_placed =
            self.index > 0 && last.next_seq.checked_sub(last.leaves - self.index) == Some(seq);
        if is_placed { Ok(body) } else { Err(ProofError::Record) }
    }

    fn body(&self) -> Option<&[u8]> {
        // `parse` expects a tag, which the leaf hash does not cover.
        let mut whole = self.frame.clone();
        whole.extend_from_slice(&[0; TAG_LEN]);
        let frame = parse(&whole)
            .ok()
            .filter(|frame| frame.kind == Kind::Record && frame.len() == whole.len())?;
        Record::decode(frame.body, &mut Vec::new()).ok()?;
        self.frame.get(HEAD_LEN..)
    }
}
