//! CB_NOTIFY, CB_PUSH_DELEG, CB_WANTS_CANCELLED, CB_NOTIFY_LOCK and CB_NOTIFY_DEVICEID (RFC 8881,
//! sections 20.4, 20.5, 20.10 to 20.12). What notifications say stays packed: no client here asks
//! for any.

use crate::macros::wire_struct;
use crate::op::Delegation;
use crate::{Bitmap, Bytes, Filehandle, List, StateOwner, Stateid};

/// Most notifications of one call.
pub const NOTIFICATIONS_MAX: usize = 1024;

wire_struct! {
    /// Notifications of some kinds (`notify4`).
    #[derive(Copy)]
    pub struct Notify<'a> {
        /// Which kinds.
        pub mask: Bitmap,
        /// What they say.
        pub values: Bytes<'a, 65_536>,
    }
}

wire_struct! {
    /// `CB_NOTIFY4args`.
    pub struct CbNotifyArgs<'a> {
        /// The delegation of the directory.
        pub stateid: Stateid,
        /// The directory.
        pub handle: Filehandle,
        /// What has changed.
        pub changes: List<Notify<'a>, NOTIFICATIONS_MAX>,
    }
}

wire_struct! {
    /// `CB_PUSH_DELEG4args`.
    #[derive(Copy)]
    pub struct CbPushDelegArgs<'a> {
        /// The file.
        pub handle: Filehandle,
        /// The delegation.
        pub delegation: Delegation<'a>,
    }
}

wire_struct! {
    /// `CB_WANTS_CANCELLED4args`.
    #[derive(Copy)]
    pub struct CbWantsCancelledArgs {
        /// Those that waited for others.
        pub contended: bool,
        /// Those that waited for resources.
        pub resourced: bool,
    }
}

wire_struct! {
    /// `CB_NOTIFY_LOCK4args`.
    #[derive(Copy)]
    pub struct CbNotifyLockArgs<'a> {
        /// The file.
        pub handle: Filehandle,
        /// Who waits.
        pub owner: StateOwner<'a>,
    }
}

wire_struct! {
    /// `CB_NOTIFY_DEVICEID4args`.
    pub struct CbNotifyDeviceidArgs<'a> {
        /// What has changed.
        pub changes: List<Notify<'a>, NOTIFICATIONS_MAX>,
    }
}
