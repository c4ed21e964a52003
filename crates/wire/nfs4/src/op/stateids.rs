//! TEST_STATEID and FREE_STATEID (RFC 8881 §18.48 and 18.38).

use crate::macros::wire_struct;
use crate::{List, Stateid, Status};

/// A request of one megabyte holds no more.
pub(crate) const STATEIDS_MAX: usize = 65_536;

wire_struct! {
    pub struct TestStateidArgs {
        pub stateids: List<Stateid, STATEIDS_MAX>,
    }
}

wire_struct! {
    pub struct TestStateidOk {
        pub statuses: List<Status, STATEIDS_MAX>,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct FreeStateidArgs {
        pub stateid: Stateid,
    }
}
