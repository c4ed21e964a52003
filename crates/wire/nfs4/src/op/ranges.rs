//! Operations on ranges of files.

use super::StableHow;
use crate::macros::{wire_copy, wire_enum};
use crate::wire::IO_LEN_MAX;
use crate::{Bitmap, Bytes, Stateid, Verifier};

// ALLOCATE and DEALLOCATE (RFC 7862 §15.1 and 15.4).

wire_copy! {
    pub struct AllocateArgs {
        pub stateid: Stateid,
        pub offset: u64,
        pub length: u64,
    }

    pub struct DeallocateArgs {
        pub stateid: Stateid,
        pub offset: u64,
        pub length: u64,
    }
}

// CLONE (RFC 7862 §15.13).

wire_copy! {
    /// The saved filehandle is the source.
    pub struct CloneArgs {
        pub source: Stateid,
        pub destination: Stateid,
        pub source_offset: u64,
        pub destination_offset: u64,
        pub count: u64,
    }
}

// COMMIT (RFC 8881 §18.3).

wire_copy! {
    pub struct CommitArgs {
        pub offset: u64,
        /// Zero means up to the end of the file.
        pub count: u32,
    }

    pub struct CommitOk {
        /// If it differs from a WRITE's, the client must repeat the WRITE.
        pub verifier: Verifier,
    }
}

// IO_ADVISE (RFC 7862 §15.5).

/// `IO_ADVISE_type4`: bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum IoAdvice {
    Normal = 0,
    Sequential = 1,
    SequentialBackwards = 2,
    Random = 3,
    Willneed = 4,
    WillneedOpportunistic = 5,
    Dontneed = 6,
    Noreuse = 7,
    Read = 8,
    Write = 9,
    InitProximity = 10,
}

wire_copy! {
    pub struct IoAdviseArgs {
        pub stateid: Stateid,
        pub offset: u64,
        /// Zero means up to the end of the file.
        pub count: u64,
        pub hints: Bitmap,
    }

    pub struct IoAdviseOk { pub hints: Bitmap }
}

// SEEK (RFC 7862 §15.11).

wire_enum! {
    pub enum DataContent = "data_content4" {
        Data = 0,
        Hole = 1,
    }
}

wire_copy! {
    pub struct SeekArgs {
        pub stateid: Stateid,
        pub offset: u64,
        pub what: DataContent,
    }

    pub struct SeekOk { pub eof: bool, pub offset: u64 }
}

// WRITE_SAME (RFC 7862 §15.12).

wire_copy! {
    pub struct AppDataBlock<'a> {
        pub offset: u64,
        pub block_size: u64,
        pub block_count: u64,
        pub number_offset: u64,
        pub number: u32,
        pub pattern_offset: u64,
        pub pattern: Bytes<'a, IO_LEN_MAX>,
    }

    pub struct WriteSameArgs<'a> {
        pub stateid: Stateid,
        pub stable: StableHow,
        pub block: AppDataBlock<'a>,
    }
}
