//! TEST_STATEID and FREE_STATEID (RFC 8881, sections 18.48 and 18.38).

use crate::macros::wire_struct;
use crate::{List, Stateid, Status};

/// Most stateids of one TEST_STATEID: what a request of a megabyte could hold.
pub const STATEIDS_MAX: usize = 65_536;

wire_struct! {
    /// `TEST_STATEID4args`.
    pub struct TestStateidArgs {
        /// Which.
        pub stateids: List<Stateid, STATEIDS_MAX>,
    }
}

wire_struct! {
    /// `TEST_STATEID4resok`.
    pub struct TestStateidOk {
        /// How each fares, in the arguments' order.
        pub statuses: List<Status, STATEIDS_MAX>,
    }
}

wire_struct! {
    /// `FREE_STATEID4args`.
    #[derive(Copy)]
    pub struct FreeStateidArgs {
        /// Which.
        pub stateid: Stateid,
    }
}
