use std::fmt;

use crate::seal::Seal;

/// How a trail was damaged or falsified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A record differs from the chained one.
    Altered,
    /// Records are missing.
    Removed,
    /// A frame that was never chained.
    Inserted,
    /// Frames in another order than they were chained.
    Reordered,
    /// Records were changed and the chain was recomputed, but the seal does not match.
    Rewritten,
    /// The end is missing.
    Cut,
    /// A seal is not signed by the key that the previous seal names.
    Forged,
    /// The trail begins with another key than the given one.
    OtherKey,
    /// A file cannot be read as a segment.
    Unreadable,
}

impl FaultKind {
    /// One word, for reports.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Altered => "altered",
            FaultKind::Removed => "removed",
            FaultKind::Inserted => "inserted",
            FaultKind::Reordered => "reordered",
            FaultKind::Rewritten => "rewritten",
            FaultKind::Cut => "cut",
            FaultKind::Forged => "forged",
            FaultKind::OtherKey => "other-key",
            FaultKind::Unreadable => "unreadable",
        }
    }
}

/// One place where verification failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How.
    pub kind: FaultKind,
    /// Number of the segment.
    pub segment: u64,
    /// In the uncompressed segment.
    pub offset: u64,
    /// First sequence number that is not authenticated.
    pub seq: u64,
    /// May quote file names and errors: escape it before printing to a terminal.
    pub description: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { kind, segment, offset, seq, description } = self;
        if *kind == FaultKind::OtherKey {
            return f.write_str(description);
        }
        write!(f, "{}: segment {segment}, byte {offset}, record {seq}: {description}", kind.name())
    }
}

/// The result of a verification.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The trail's id.
    pub trail: Option<[u8; 16]>,
    /// The first public key, from the caller or from the trail itself.
    pub public: Option<[u8; 32]>,
    /// Segments read.
    pub segments: u64,
    /// Records read.
    pub records: u64,
    /// Records after the last seal.
    pub unsealed: u64,
    /// First and last sequence number.
    pub span: Option<(u64, u64)>,
    /// Earliest and latest, nanoseconds since 1970.
    pub times: Option<(u64, u64)>,
    /// The last valid seal.
    pub last: Option<Seal>,
    /// Empty: everything that is sealed is authentic.
    pub faults: Vec<Fault>,
    /// Remarks that are not faults. They quote text from records: escape them before printing to a
    /// terminal.
    pub notes: Vec<String>,
}
