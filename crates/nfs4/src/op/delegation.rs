//! DELEGPURGE, DELEGRETURN, GET_DIR_DELEGATION and WANT_DELEGATION (RFC 8881, sections 18.5, 18.6,
//! 18.39 and 18.49).

use super::{DelegationType, ShareAccess};
use crate::macros::{wire_struct, wire_union};
use crate::{Bitmap, ClientId, Stateid, Time, Verifier};

wire_struct! {
    /// `DELEGPURGE4args`.
    #[derive(Copy)]
    pub struct DelegpurgeArgs {
        /// The client; 4.1 takes it from the session.
        pub client: ClientId,
    }
}

wire_struct! {
    /// `DELEGRETURN4args`.
    #[derive(Copy)]
    pub struct DelegreturnArgs {
        /// The delegation.
        pub stateid: Stateid,
    }
}

wire_struct! {
    /// `GET_DIR_DELEGATION4args`.
    #[derive(Copy)]
    pub struct GetDirDelegationArgs {
        /// Whether to be told when there is one.
        pub signal: bool,
        /// Which notifications.
        pub notifications: Bitmap,
        /// How late those of entries' attributes may be.
        pub child_delay: Time,
        /// How late those of the directory's may be.
        pub dir_delay: Time,
        /// Which attributes of entries.
        pub child_attrs: Bitmap,
        /// Which of the directory.
        pub dir_attrs: Bitmap,
    }
}

wire_struct! {
    /// `GET_DIR_DELEGATION4resok`.
    #[derive(Copy)]
    pub struct GetDirDelegationOk {
        /// The verifier of cookies.
        pub cookie_verifier: Verifier,
        /// The delegation.
        pub stateid: Stateid,
        /// Which notifications will come.
        pub notifications: Bitmap,
        /// Which attributes of entries.
        pub child_attrs: Bitmap,
        /// Which of the directory.
        pub dir_attrs: Bitmap,
    }
}

wire_union! {
    /// `GET_DIR_DELEGATION4res_non_fatal`.
    #[derive(Copy)]
    pub enum GetDirDelegationReply = "gddrnf4_status" {
        /// Granted.
        0 => Granted(ok: GetDirDelegationOk),
        /// Not now; whether the client will be told.
        1 => Unavailable(will_signal: bool),
    }
}

wire_union! {
    /// On what grounds (`deleg_claim4`).
    #[derive(Copy)]
    pub enum DelegClaim = "deleg_claim4" {
        /// Held before the server restarted.
        1 => Previous(kind: DelegationType),
        /// New.
        4 => Fh,
        /// Held before the client restarted.
        6 => DelegPrevFh,
    }
}

wire_struct! {
    /// `WANT_DELEGATION4args`.
    #[derive(Copy)]
    pub struct WantDelegationArgs {
        /// What is wanted.
        pub want: ShareAccess,
        /// On what grounds.
        pub claim: DelegClaim,
    }
}
