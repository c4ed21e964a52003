//! Operations on stateids and delegations.

use super::{DelegationType, ShareAccess, ShareDeny};
use crate::macros::{wire_copy, wire_struct, wire_union};
use crate::{Bitmap, ClientId, List, OwnerSeq, Stateid, Status, Time, Verifier};

// CLOSE (RFC 8881 §18.2).

wire_copy! {
    pub struct CloseArgs {
        /// 4.0.
        pub seq: OwnerSeq,
        pub stateid: Stateid,
    }

    pub struct CloseOk { pub stateid: Stateid }
}

// DELEGPURGE, DELEGRETURN, GET_DIR_DELEGATION and WANT_DELEGATION (RFC 8881 §18.5, 18.6, 18.39 and
// 18.49).

wire_copy! {
    pub struct DelegpurgeArgs {
        /// A 4.1 server takes it from the session.
        pub client: ClientId,
    }

    pub struct DelegreturnArgs { pub stateid: Stateid }

    pub struct GetDirDelegationArgs {
        pub signal: bool,
        pub notifications: Bitmap,
        pub child_delay: Time,
        pub dir_delay: Time,
        pub child_attrs: Bitmap,
        pub dir_attrs: Bitmap,
    }

    pub struct GetDirDelegationOk {
        pub cookie_verifier: Verifier,
        pub stateid: Stateid,
        pub notifications: Bitmap,
        pub child_attrs: Bitmap,
        pub dir_attrs: Bitmap,
    }
}

wire_union! {
    /// `GET_DIR_DELEGATION4res_non_fatal`.
    #[derive(Copy)]
    pub enum GetDirDelegationReply = "gddrnf4_status" {
        0 => Granted(ok: GetDirDelegationOk),
        1 => Unavailable(will_signal: bool),
    }
}

wire_union! {
    #[derive(Copy)]
    pub enum DelegClaim = "deleg_claim4" {
        1 => Previous(kind: DelegationType),
        4 => Fh,
        6 => DelegPrevFh,
    }
}

wire_copy! {
    pub struct WantDelegationArgs { pub want: ShareAccess, pub claim: DelegClaim }
}

// OPEN_CONFIRM (RFC 7530 §16.18), OPEN_DOWNGRADE and OPENATTR (RFC 8881 §18.18 and 18.17).

wire_copy! {
    pub struct OpenattrArgs { pub create: bool }
    pub struct OpenConfirmArgs { pub stateid: Stateid, pub seq: OwnerSeq }
    pub struct OpenConfirmOk { pub stateid: Stateid }

    pub struct OpenDowngradeArgs {
        pub stateid: Stateid,
        /// 4.0.
        pub seq: OwnerSeq,
        pub access: ShareAccess,
        pub deny: ShareDeny,
    }

    pub struct OpenDowngradeOk { pub stateid: Stateid }
}

// TEST_STATEID and FREE_STATEID (RFC 8881 §18.48 and 18.38).

/// A request of one megabyte holds no more.
pub(crate) const STATEIDS_MAX: usize = 65_536;

wire_struct! {
    pub struct TestStateidArgs { pub stateids: List<Stateid, STATEIDS_MAX> }
    pub struct TestStateidOk { pub statuses: List<Status, STATEIDS_MAX> }
}

wire_copy! {
    pub struct FreeStateidArgs { pub stateid: Stateid }
}
