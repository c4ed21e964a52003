//! COPY, COPY_NOTIFY, OFFLOAD_CANCEL and OFFLOAD_STATUS (RFC 7862, sections 15.2, 15.3, 15.8 and
//! 15.9).

use super::StableHow;
use crate::macros::{wire_failure, wire_struct};
use crate::{List, NetLoc, Stateid, Status, Time, Verifier};

/// Most places of a server.
pub const NET_LOCS_MAX: usize = 64;

wire_struct! {
    /// `COPY4args`. The saved filehandle is the source.
    pub struct CopyArgs<'a> {
        /// An open of the source for reading.
        pub source: Stateid,
        /// An open of the destination for writing.
        pub destination: Stateid,
        /// Where to read.
        pub source_offset: u64,
        /// Where to write.
        pub destination_offset: u64,
        /// How much; zero is up to the end.
        pub count: u64,
        /// Whether the bytes must be copied in order.
        pub consecutive: bool,
        /// Whether to answer only when it is done.
        pub synchronous: bool,
        /// Where the source is, if elsewhere.
        pub source_server: List<NetLoc<'a>, NET_LOCS_MAX>,
    }
}

wire_struct! {
    /// How a copy is or must be done (`copy_requirements4`).
    #[derive(Copy)]
    pub struct CopyRequirements {
        /// In order.
        pub consecutive: bool,
        /// Before it is answered.
        pub synchronous: bool,
    }
}

wire_struct! {
    /// What was written, or the copy that will (`write_response4`).
    #[derive(Copy)]
    pub struct WriteResponse {
        /// The copy, if it goes on.
        pub callback: Option<Stateid>,
        /// Bytes so far.
        pub count: u64,
        /// How durably.
        pub committed: StableHow,
        /// The server's life.
        pub verifier: Verifier,
    }
}

wire_struct! {
    /// `COPY4resok`.
    #[derive(Copy)]
    pub struct CopyOk {
        /// What was written.
        pub response: WriteResponse,
        /// How.
        pub requirements: CopyRequirements,
    }
}

wire_failure! {
    /// How COPY fails.
    pub enum CopyFailure {
        /// The server can only do it so.
        OFFLOAD_NO_REQS => NoReqs(CopyRequirements)
    }
}

wire_struct! {
    /// `COPY_NOTIFY4args`.
    #[derive(Copy)]
    pub struct CopyNotifyArgs<'a> {
        /// An open of the source.
        pub source: Stateid,
        /// Who will fetch it.
        pub destination: NetLoc<'a>,
    }
}

wire_struct! {
    /// `COPY_NOTIFY4resok`.
    pub struct CopyNotifyOk<'a> {
        /// How long it may take to begin.
        pub lease_time: Time,
        /// What to give the destination.
        pub stateid: Stateid,
        /// Where the source can be reached.
        pub source_server: List<NetLoc<'a>, NET_LOCS_MAX>,
    }
}

wire_struct! {
    /// `OFFLOAD_CANCEL4args`.
    #[derive(Copy)]
    pub struct OffloadCancelArgs {
        /// The copy.
        pub stateid: Stateid,
    }
}

wire_struct! {
    /// `OFFLOAD_STATUS4args`.
    #[derive(Copy)]
    pub struct OffloadStatusArgs {
        /// The copy.
        pub stateid: Stateid,
    }
}

wire_struct! {
    /// `OFFLOAD_STATUS4resok`.
    #[derive(Copy)]
    pub struct OffloadStatusOk {
        /// Bytes so far.
        pub count: u64,
        /// How it ended, if it has.
        pub complete: Option<Status>,
    }
}
