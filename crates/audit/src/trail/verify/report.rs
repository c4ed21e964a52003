//! What verification found.

use std::fmt;

use crate::seal::Seal;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A record's bytes are not those that were chained.
    Altered,
    /// Records are missing.
    Removed,
    /// Something stands there that was never chained.
    Inserted,
    /// Records stand in another order.
    Reordered,
    /// Records were changed, and the chain was computed anew to hide it; the seal doesn't fit.
    Rewritten,
    /// The end is missing.
    Cut,
    /// A seal is not signed by the key that the one before named.
    Forged,
    /// A file can't be read as a segment.
    Unreadable,
}

impl FaultKind {
    /// Its name in text.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Altered => "altered",
            FaultKind::Removed => "removed",
            FaultKind::Inserted => "inserted",
            FaultKind::Reordered => "reordered",
            FaultKind::Rewritten => "rewritten",
            FaultKind::Cut => "cut",
            FaultKind::Forged => "forged",
            FaultKind::Unreadable => "unreadable",
        }
    }
}

/// Something wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// The segment.
    pub segment: u64,
    /// Where in the segment, uncompressed.
    pub offset: u64,
    /// The first sequence number that can't be vouched for.
    pub seq: u64,
    /// In words. Names and errors are in it as they were found: not for a terminal as it is.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { kind, segment, offset, seq, what } = self;
        write!(f, "{}: segment {segment}, byte {offset}, record {seq}: {what}", kind.name())
    }
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The trail.
    pub trail: Option<[u8; 16]>,
    /// The first public key, whether it was given or the trail's own word.
    pub public: Option<[u8; 32]>,
    /// Segments read.
    pub segments: u64,
    /// Records read.
    pub records: u64,
    /// Records at the end that no seal vouches for yet.
    pub unsealed: u64,
    /// Sequence numbers of the first and the last record.
    pub span: Option<(u64, u64)>,
    /// Times of the first and the last record.
    pub times: Option<(u64, u64)>,
    /// The last seal.
    pub last: Option<Seal>,
    /// What is wrong, in the trail's order.
    pub faults: Vec<Fault>,
    /// What is worth knowing and isn't wrong. What a record says stands in quotes; all of it is not
    /// for a terminal as it is.
    pub notes: Vec<String>,
}
