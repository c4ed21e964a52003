//! DELEGPURGE, DELEGRETURN, GET_DIR_DELEGATION and WANT_DELEGATION (RFC 8881 §18.5, 18.6, 18.39 and
//! 18.49).

use super::{DelegationType, ShareAccess};
use crate::macros::{wire_struct, wire_union};
use crate::{Bitmap, ClientId, Stateid, Time, Verifier};

wire_struct! {
    #[derive(Copy)]
    pub struct DelegpurgeArgs {
        /// A 4.1 server takes it from the session.
        pub client: ClientId,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct DelegreturnArgs {
        pub stateid: Stateid,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct GetDirDelegationArgs {
        pub signal: bool,
        pub notifications: Bitmap,
        pub child_delay: Time,
        pub dir_delay: Time,
        pub child_attrs: Bitmap,
        pub dir_attrs: Bitmap,
    }
}

wire_struct! {
    #[derive(Copy)]
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

wire_struct! {
    #[derive(Copy)]
    pub struct WantDelegationArgs {
        pub want: ShareAccess,
        pub claim: DelegClaim,
    }
}
