//! Frames of a segment file: head (length and kind), body and chain tag.

use crate::chain::{Chain, Hash, TAG_LEN, leaf_hash, leaf_hasher};
use crate::merkle::Frontier;

/// Start of a segment file.
pub const MAGIC: [u8; 8] = *b"VOUCHTR1";
pub(crate) const HEAD_LEN: usize = 4;
pub(crate) const OVERHEAD: usize = HEAD_LEN + TAG_LEN;
/// Ample for two paths, a principal and all other fields.
pub(crate) const BODY_LEN_MAX: usize = 64 * 1024;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A [`Header`], the first frame of each segment.
    Header = 0,
    /// A [`Record`](crate::Record).
    Record = 1,
    /// A [`Seal`](crate::seal::Seal) inside a segment.
    Checkpoint = 2,
    /// A [`Seal`](crate::seal::Seal) at the end of a segment.
    Close = 3,
}

impl Kind {
    fn of(number: u8) -> Option<Kind> {
        [Kind::Header, Kind::Record, Kind::Checkpoint, Kind::Close]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// One frame, borrowed from the segment's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What the body is.
    pub kind: Kind,
    /// 1 byte to 64 KiB.
    pub body: &'a [u8],
    /// Start of the chain value after this frame, as stored in the file.
    pub tag: [u8; TAG_LEN],
    /// Head and body, which the leaf hash covers.
    pub hashed: &'a [u8],
}

impl Frame<'_> {
    pub(crate) fn leaf_hash(&self) -> Hash {
        leaf_hash(self.hashed)
    }

    /// Length in the file, in bytes.
    pub fn len(&self) -> usize {
        self.hashed.len() + TAG_LEN
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum FrameError {
    #[error("the frame is truncated")]
    Truncated,
    #[error("the frame is malformed")]
    Malformed,
}

/// The frame at the start of `bytes`. Does not verify the chain tag.
pub fn parse(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let (head, rest) = bytes.split_at_checked(HEAD_LEN).ok_or(FrameError::Truncated)?;
    let word = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let kind = Kind::of((word >> 24) as u8).ok_or(FrameError::Malformed)?;
    let len = (word & 0x00ff_ffff) as usize;
    if len == 0 || len > BODY_LEN_MAX {
        return Err(FrameError::Malformed);
    }
    let (body, rest) = rest.split_at_checked(len).ok_or(FrameError::Truncated)?;
    let tag = rest.first_chunk::<TAG_LEN>().ok_or(FrameError::Truncated)?;
    Ok(Frame { kind, body, tag: *tag, hashed: &bytes[..HEAD_LEN + len] })
}

pub(crate) fn head(kind: Kind, body_len: usize) -> [u8; HEAD_LEN] {
    assert!(body_len > 0 && body_len <= BODY_LEN_MAX, "bodies respect the length limit");
    ((kind as u32) << 24 | body_len as u32).to_le_bytes()
}

pub(crate) fn append(out: &mut Vec<u8>, kind: Kind, body: &[u8], chain: &mut Chain) -> Hash {
    let start = out.len();
    out.extend_from_slice(&head(kind, body.len()));
    out.extend_from_slice(body);
    let leaf = leaf_hash(&out[start..]);
    *chain = chain.extend(&leaf);
    out.extend_from_slice(&chain.tag());
    leaf
}

/// Computes a leaf's hashes together with the next leaf's own hash. Dropping it completes `chain`
/// and `tree`.
pub(crate) struct LeafBatch<'l> {
    pub(crate) out: &'l mut Vec<u8>,
    pub(crate) chain: &'l mut Chain,
    pub(crate) tree: &'l mut Frontier,
    pub(crate) last: Option<(Hash, usize)>,
}

impl LeafBatch<'_> {
    pub(crate) fn append(&mut self, kind: Kind, body: &[u8]) {
        let start = self.out.len();
        self.out.extend_from_slice(&head(kind, body.len()));
        self.out.extend_from_slice(body);
        let tag_at = self.out.len();
        self.out.extend_from_slice(&[0; TAG_LEN]);
        let frame = &self.out[start..tag_at];
        let leaf = match (leaf_hasher(frame), self.last.take()) {
            (Some(mut leaf), Some((last, last_tag_at))) => {
                let mut chain = self.chain.steps(&last);
                let mut tree = self.tree.insertion(last);
                while leaf.step() | chain.step() | tree.step() {}
                *self.chain = Chain(chain.hash());
                self.out[last_tag_at..last_tag_at + TAG_LEN].copy_from_slice(&self.chain.tag());
                leaf.hash()
            }
            (None, last) => {
                let leaf = leaf_hash(frame);
                self.last = last;
                self.flush();
                leaf
            }
            (Some(leaf), None) => leaf.hash(),
        };
        self.last = Some((leaf, tag_at));
    }

    fn flush(&mut self) {
        if let Some((leaf, tag_at)) = self.last.take() {
            self.tree.push(leaf);
            *self.chain = self.chain.extend(&leaf);
            self.out[tag_at..tag_at + TAG_LEN].copy_from_slice(&self.chain.tag());
        }
    }
}

impl Drop for LeafBatch<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The first leaf of a segment's Merkle tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Within the trail, from 1.
    pub segment: u64,
    /// Sequence number of the segment's first record.
    pub first_seq: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// From /proc/sys/kernel/random/boot_id.
    pub boot: [u8; 16],
    /// Identity of the trail, chosen with its key.
    pub trail: [u8; 16],
    /// The chain value before this frame.
    pub previous: Hash,
    /// Epoch of the key that signs the next seal.
    pub epoch: u64,
    /// Public half of that key.
    pub public: [u8; 32],
}

pub(crate) const HEADER_LEN: usize = 132;
const VERSION: u16 = 1;

impl Header {
    /// The body of the header frame.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&VERSION.to_le_bytes());
        put(&[0; 2]);
        put(&self.segment.to_le_bytes());
        put(&self.first_seq.to_le_bytes());
        put(&self.time_ns.to_le_bytes());
        put(&self.boot);
        put(&self.trail);
        put(&self.previous);
        put(&self.epoch.to_le_bytes());
        put(&self.public);
        out
    }

    /// `None` for another version.
    pub fn decode(body: &[u8]) -> Option<Header> {
        let mut r = FieldReader(<&[u8; HEADER_LEN]>::try_from(body).ok()?);
        if r.take::<2>() != VERSION.to_le_bytes() || r.take::<2>() != [0; 2] {
            return None;
        }
        Some(Header {
            segment: r.u64(),
            first_seq: r.u64(),
            time_ns: r.u64(),
            boot: r.take(),
            trail: r.take(),
            previous: r.take(),
            epoch: r.u64(),
            public: r.take(),
        })
    }
}

pub(crate) struct FieldReader<'a>(pub(crate) &'a [u8]);

impl FieldReader<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) =
            self.0.split_first_chunk::<N>().expect("the length was checked for all fields");
        self.0 = rest;
        *field
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batched_leaves_equal_single_appends() {
        let bodies: Vec<Vec<u8>> =
            (0..200usize).map(|number| vec![number as u8; 1 + number * 37 % 700]).collect();
        for count in [0, 1, 2, 3, 50, 200] {
            let (mut out, mut chain, mut tree) = (Vec::new(), Chain::START, Frontier::default());
            for body in &bodies[..count] {
                tree.push(append(&mut out, Kind::Record, body, &mut chain));
            }
            let (mut batch_out, mut batch_chain, mut batch_tree) =
                (Vec::new(), Chain::START, Frontier::default());
            let (one, two) = bodies[..count].split_at(count / 3);
            for part in [one, two] {
                let mut leaves = LeafBatch {
                    out: &mut batch_out,
                    chain: &mut batch_chain,
                    tree: &mut batch_tree,
                    last: None,
                };
                part.iter().for_each(|body| leaves.append(Kind::Record, body));
            }
            assert!(batch_out == out && batch_chain == chain && batch_tree == tree, "{count}");
        }
    }
}
