//! The report of a verification.

use std::fmt;

use crate::seal::Seal;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A record differs from what was chained.
    Altered,
    /// Records are missing.
    Removed,
    /// A frame was inserted that was never chained.
    Inserted,
    /// Records are out of order.
    Reordered,
    /// Records were changed and the chain was recomputed, but the seal does not match.
    Rewritten,
    /// The end is missing.
    Cut,
    /// A seal is not signed by the key that the previous seal names.
    Forged,
    /// A file cannot be read as a segment.
    Unreadable,
}

impl FaultKind {
    /// Returns the name in text output.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: FaultKind,
    pub segment: u64,
    /// Offset in the uncompressed segment.
    pub offset: u64,
    /// The first sequence number that is not authenticated.
    pub seq: u64,
    /// Description. It may quote file names and errors, so escape it before printing to a terminal.
    pub description: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { kind, segment, offset, seq, description } = self;
        write!(f, "{}: segment {segment}, byte {offset}, record {seq}: {description}", kind.name())
    }
}

/// The result of a verification.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub trail: Option<[u8; 16]>,
    /// The first public key, from the caller or from the trail itself.
    pub public: Option<[u8; 32]>,
    /// Number of segments read.
    pub segments: u64,
    /// Number of records read.
    pub records: u64,
    /// Number of records after the last seal.
    pub unsealed: u64,
    /// First and last sequence number.
    pub span: Option<(u64, u64)>,
    /// Earliest and latest time, nanoseconds since 1970.
    pub times: Option<(u64, u64)>,
    pub last: Option<Seal>,
    /// Faults in the order of the trail.
    pub faults: Vec<Fault>,
    /// Remarks that are not faults. Text from records is quoted; escape all of it before printing
    /// to a terminal.
    pub notes: Vec<String>,
}
