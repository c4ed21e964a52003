//! CB_NOTIFY, CB_PUSH_DELEG, CB_WANTS_CANCELLED, CB_NOTIFY_LOCK and CB_NOTIFY_DEVICEID (RFC 8881,
//! sections 20.4, 20.5, 20.10 to 20.12). Notifications stay packed, because the client requests
//! none.

use crate::macros::wire_struct;
use crate::op::Delegation;
use crate::{Bitmap, Bytes, Filehandle, List, StateOwner, Stateid};

pub(crate) const NOTIFICATIONS_MAX: usize = 1024;

wire_struct! {
    #[derive(Copy)]
    pub struct Notify<'a> {
        pub mask: Bitmap,
        pub values: Bytes<'a, 65_536>,
    }
}

wire_struct! {
    pub struct CbNotifyArgs<'a> {
        /// Stateid of the directory delegation.
        pub stateid: Stateid,
        /// The directory.
        pub handle: Filehandle,
        /// Changes in the directory.
        pub changes: List<Notify<'a>, NOTIFICATIONS_MAX>,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct CbPushDelegArgs<'a> {
        /// The file.
        pub handle: Filehandle,
        /// The delegation.
        pub delegation: Delegation<'a>,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct CbWantsCancelledArgs {
        /// Cancels delegation requests that wait for a conflict to end.
        pub contended: bool,
        /// Cancels delegation requests that wait for resources.
        pub resourced: bool,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct CbNotifyLockArgs<'a> {
        /// The file.
        pub handle: Filehandle,
        /// Owner that waits for the lock.
        pub owner: StateOwner<'a>,
    }
}

wire_struct! {
    pub struct CbNotifyDeviceidArgs<'a> {
        /// Changes of devices.
        pub changes: List<Notify<'a>, NOTIFICATIONS_MAX>,
    }
}
