//! Frames: what a segment's file is a sequence of. A frame is a head (length and kind), a body and
//! a tag of the chain's value. Never looks into bodies other than the segment's header.

use crate::chain::{Chain, Hash, TAG_LEN, leaf, leaf_steps};
use crate::merkle::Frontier;

/// What a segment's file begins with.
pub const MAGIC: [u8; 8] = *b"VOUCHTR1";
/// Bytes before a frame's body.
pub const HEAD_LEN: usize = 4;
/// Bytes of a frame that are not its body.
pub const OVERHEAD: usize = HEAD_LEN + TAG_LEN;
/// Longest body: two paths, a principal and all else with room to spare.
pub const BODY_LEN_MAX: usize = 64 * 1024;

/// What a frame's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A [`Header`]: the first frame of a segment and no other.
    Header = 0,
    /// A [`Record`](crate::Record).
    Record = 1,
    /// A [`Seal`](crate::seal::Seal) within a segment.
    Checkpoint = 2,
    /// A [`Seal`](crate::seal::Seal) at a segment's end.
    Close = 3,
}

impl Kind {
    fn of(number: u8) -> Option<Kind> {
        [Kind::Header, Kind::Record, Kind::Checkpoint, Kind::Close].into_iter().find(|kind| *kind as u8 == number)
    }

    /// Whether it is a leaf of the segment's Merkle tree: what seals say is theirs alone.
    pub fn is_leaf(self) -> bool {
        matches!(self, Kind::Header | Kind::Record)
    }
}

/// A frame as it lies in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Kind.
    pub kind: Kind,
    /// Body.
    pub body: &'a [u8],
    /// What it says the chain's value begins with.
    pub tag: [u8; TAG_LEN],
    /// Head and body: what is hashed.
    pub hashed: &'a [u8],
}

impl Frame<'_> {
    /// The leaf of chain and tree.
    pub fn leaf(&self) -> Hash {
        leaf(self.hashed)
    }

    /// Bytes in the file.
    pub fn len(&self) -> usize {
        self.hashed.len() + TAG_LEN
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Why there is no frame at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes end before the frame does.
    #[error("the frame is cut off")]
    Cut,
    /// No such kind, or too long.
    #[error("this is no frame")]
    Malformed,
}

/// The frame at the front of `bytes`.
pub fn parse(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let (head, rest) = bytes.split_at_checked(HEAD_LEN).ok_or(FrameError::Cut)?;
    let word = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let kind = Kind::of((word >> 24) as u8).ok_or(FrameError::Malformed)?;
    let len = (word & 0x00ff_ffff) as usize;
    if len == 0 || len > BODY_LEN_MAX {
        return Err(FrameError::Malformed);
    }
    let (body, rest) = rest.split_at_checked(len).ok_or(FrameError::Cut)?;
    let tag = rest.first_chunk::<TAG_LEN>().ok_or(FrameError::Cut)?;
    Ok(Frame { kind, body, tag: *tag, hashed: &bytes[..HEAD_LEN + len] })
}

/// The head of a frame.
pub fn head(kind: Kind, body_len: usize) -> [u8; HEAD_LEN] {
    assert!(body_len > 0 && body_len <= BODY_LEN_MAX, "bodies are made within the limit");
    ((kind as u32) << 24 | body_len as u32).to_le_bytes()
}

/// Appends a frame and moves the chain on; returns the leaf.
pub fn append(out: &mut Vec<u8>, kind: Kind, body: &[u8], chain: &mut Chain) -> Hash {
    let start = out.len();
    out.extend_from_slice(&head(kind, body.len()));
    out.extend_from_slice(body);
    let leaf = leaf(&out[start..]);
    *chain = chain.then(&leaf);
    out.extend_from_slice(&chain.tag());
    leaf
}

/// Leaves that are appended one after the other: what chain and tree make of each is hashed along
/// with the next, which does not depend on it. Whole again once it is dropped.
pub(crate) struct Leaves<'l> {
    pub(crate) out: &'l mut Vec<u8>,
    pub(crate) chain: &'l mut Chain,
    pub(crate) tree: &'l mut Frontier,
    /// The leaf that is in neither yet, and where its tag belongs.
    pub(crate) last: Option<(Hash, usize)>,
}

impl Leaves<'_> {
    /// Appends a frame.
    pub(crate) fn append(&mut self, kind: Kind, body: &[u8]) {
        let start = self.out.len();
        self.out.extend_from_slice(&head(kind, body.len()));
        self.out.extend_from_slice(body);
        let tag_at = self.out.len();
        self.out.extend_from_slice(&[0; TAG_LEN]);
        let frame = &self.out[start..tag_at];
        let leaf = match (leaf_steps(frame), self.last.take()) {
            (Some(mut leaf), Some((last, last_tag_at))) => {
                let mut chain = self.chain.steps(&last);
                let mut tree = self.tree.pushing(last);
                // All three go on as long as any does.
                while leaf.step() | chain.step() | tree.step() {}
                *self.chain = Chain(chain.hash());
                self.out[last_tag_at..last_tag_at + TAG_LEN].copy_from_slice(&self.chain.tag());
                leaf.hash()
            }
            (None, last) => {
                let leaf = leaf(frame);
                self.last = last;
                self.settle();
                leaf
            }
            (Some(leaf), None) => leaf.hash(),
        };
        self.last = Some((leaf, tag_at));
    }

    fn settle(&mut self) {
        if let Some((leaf, tag_at)) = self.last.take() {
            self.tree.push(leaf);
            *self.chain = self.chain.then(&leaf);
            self.out[tag_at..tag_at + TAG_LEN].copy_from_slice(&self.chain.tag());
        }
    }
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}

/// What a segment says of itself. Its frame is the first leaf of the segment's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the segment within the trail, from 1.
    pub segment: u64,
    /// Sequence number that its first record has.
    pub first_seq: u64,
    /// When it was begun, nanoseconds since 1970.
    pub time_ns: u64,
    /// The boot of the machine that it was written in (/proc/sys/kernel/random/boot_id).
    pub boot: [u8; 16],
    /// The trail, as its key was made for it.
    pub trail: [u8; 16],
    /// The chain's value before this frame.
    pub previous: Hash,
    /// Epoch of the key that signs next.
    pub epoch: u64,
    /// Public half of that key.
    pub public: [u8; 32],
}

/// Bytes of a header's body.
pub const HEADER_LEN: usize = 132;
const VERSION: u16 = 1;

impl Header {
    /// The body.
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

    /// The header with this body; none if it isn't one of this version.
    pub fn decode(body: &[u8]) -> Option<Header> {
        let mut r = Fields(<&[u8; HEADER_LEN]>::try_from(body).ok()?);
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

/// Fields of fixed length, one after the other. Whoever makes one has checked that they are there.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk::<N>().expect("the length was checked for all fields");
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
    fn leaves_that_are_appended_together_are_what_each_by_itself_is() {
        // Also long ones, which are not laid out in blocks.
        let bodies: Vec<Vec<u8>> = (0..200usize).map(|number| vec![number as u8; 1 + number * 37 % 700]).collect();
        for count in [0, 1, 2, 3, 50, 200] {
            let (mut out, mut chain, mut tree) = (Vec::new(), Chain::START, Frontier::default());
            for body in &bodies[..count] {
                tree.push(append(&mut out, Kind::Record, body, &mut chain));
            }
            let (mut out_too, mut chain_too, mut tree_too) = (Vec::new(), Chain::START, Frontier::default());
            let (one, two) = bodies[..count].split_at(count / 3);
            for part in [one, two] {
                let mut leaves = Leaves { out: &mut out_too, chain: &mut chain_too, tree: &mut tree_too, last: None };
                part.iter().for_each(|body| leaves.append(Kind::Record, body));
            }
            assert!(out_too == out && chain_too == chain && tree_too == tree, "{count}");
        }
    }
}
