//! COPY, COPY_NOTIFY, OFFLOAD_CANCEL and OFFLOAD_STATUS (RFC 7862 §15.2, 15.3, 15.8 and 15.9).

use super::StableHow;
use crate::macros::{wire_copy, wire_failure, wire_struct};
use crate::{List, NetLoc, Stateid, Status, Time, Verifier};

pub(crate) const NET_LOCS_MAX: usize = 64;

wire_struct! {
    /// The saved filehandle is the source.
    pub struct CopyArgs<'a> {
        pub source: Stateid,
        pub destination: Stateid,
        pub source_offset: u64,
        pub destination_offset: u64,
        pub count: u64,
        /// Copy the bytes in order.
        pub consecutive: bool,
        /// Answer only after the copy is complete.
        pub synchronous: bool,
        /// Empty for a copy within the server.
        pub source_server: List<NetLoc<'a>, NET_LOCS_MAX>,
    }
}

wire_copy! {
    /// `copy_requirements4`, as requested or performed.
    pub struct CopyRequirements {
        /// The bytes are copied in order.
        pub consecutive: bool,
        pub synchronous: bool,
    }

    pub struct WriteResponse {
        pub callback: Option<Stateid>,
        pub count: u64,
        pub committed: StableHow,
        pub verifier: Verifier,
    }

    pub struct CopyOk { pub response: WriteResponse, pub requirements: CopyRequirements }
}

wire_failure! {
    pub enum CopyFailure {
        OFFLOAD_NO_REQS => NoReqs(CopyRequirements)
    }
}

wire_copy! {
    pub struct CopyNotifyArgs<'a> { pub source: Stateid, pub destination: NetLoc<'a> }
}

wire_struct! {
    pub struct CopyNotifyOk<'a> {
        /// The copy must begin within this time.
        pub lease_time: Time,
        pub stateid: Stateid,
        pub source_server: List<NetLoc<'a>, NET_LOCS_MAX>,
    }
}

wire_copy! {
    pub struct OffloadCancelArgs { pub stateid: Stateid }
    pub struct OffloadStatusArgs { pub stateid: Stateid }
    pub struct OffloadStatusOk { pub count: u64, pub complete: Option<Status> }
}
