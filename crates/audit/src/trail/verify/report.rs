use std::fmt;

use crate::seal::Seal;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A record differs from the chained one.
    Altered,
    /// Records are missing.
    Removed,
    /// A frame that was never chained.
    Inserted,
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
        write!(f, "{}: segment {segment}, byte {offset}, record {seq}: {description}", kind.name())
    }
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub trail: Option<[u8; 16]>,
    /// The first public key, from the caller or from the trail itself.
    pub public: Option<[u8; 32]>,
    pub segments: u64,
    pub records: u64,
    /// Records after the last seal.
    pub unsealed: u64,
    /// First and last sequence number.
    pub span: Option<(u64, u64)>,
    /// Earliest and latest, nanoseconds since 1970.
    pub times: Option<(u64, u64)>,
    pub last: Option<Seal>,
    pub faults: Vec<Fault>,
    /// Remarks that are not faults. They quote text from records: escape them before printing to a
    /// terminal.
    pub notes: Vec<String>,
}
