//! DELEGPURGE, DELEGRETURN, GET_DIR_DELEGATION and WANT_DELEGATION (RFC 8881, sections 18.5, 18.6,
//! 18.39 and 18.49).

use super::{DelegationType, ShareAccess};
use crate::macros::{wire_struct, wire_union};
use crate::{Bitmap, ClientId, Stateid, Time, Verifier};

wire_struct! {
    /// `DELEGPURGE4args`.
    #[derive(Copy)]
    pub struct DelegpurgeArgs {
        /// The client. A 4.1 server takes it from the session instead.
        pub client: ClientId,
    }
}

wire_struct! {
    /// `DELEGRETURN4args`.
    #[derive(Copy)]
    pub struct DelegreturnArgs {
        /// Stateid of the delegation.
        pub stateid: Stateid,
    }
}

wire_struct! {
    /// `GET_DIR_DELEGATION4args`.
    #[derive(Copy)]
    pub struct GetDirDelegationArgs {
        /// Whether the server signals when a delegation becomes available.
        pub signal: bool,
        /// Requested notifications.
        pub notifications: Bitmap,
        /// Maximum delay of notifications about attributes of entries.
        pub child_delay: Time,
        /// Maximum delay of notifications about attributes of the directory.
        pub dir_delay: Time,
        /// Attributes of entries to report.
        pub child_attrs: Bitmap,
        /// Attributes of the directory to report.
        pub dir_attrs: Bitmap,
    }
}

wire_struct! {
    /// `GET_DIR_DELEGATION4resok`.
    #[derive(Copy)]
    pub struct GetDirDelegationOk {
        /// Cookie verifier of the directory.
        pub cookie_verifier: Verifier,
        /// Stateid of the delegation.
        pub stateid: Stateid,
        /// Notifications that the server will send.
        pub notifications: Bitmap,
        /// Attributes of entries that the server will report.
        pub child_attrs: Bitmap,
        /// Attributes of the directory that the server will report.
        pub dir_attrs: Bitmap,
    }
}

wire_union! {
    /// `GET_DIR_DELEGATION4res_non_fatal`.
    #[derive(Copy)]
    pub enum GetDirDelegationReply = "gddrnf4_status" {
        /// The server granted the delegation.
        0 => Granted(ok: GetDirDelegationOk),
        /// The delegation is not available; the flag says whether the server will signal when it
        /// is.
        1 => Unavailable(will_signal: bool),
    }
}

wire_union! {
    /// Claim type of a delegation request (`deleg_claim4`).
    #[derive(Copy)]
    pub enum DelegClaim = "deleg_claim4" {
        /// The client reclaims a delegation from before a server restart.
        1 => Previous(kind: DelegationType),
        /// The client requests a new delegation.
        4 => Fh,
        /// The client reclaims a delegation from before its own restart.
        6 => DelegPrevFh,
    }
}

wire_struct! {
    /// `WANT_DELEGATION4args`.
    #[derive(Copy)]
    pub struct WantDelegationArgs {
        /// Requested type of delegation.
        pub want: ShareAccess,
        /// Claim type.
        pub claim: DelegClaim,
    }
}
