//! RFC 8881 §20.4, 20.5, 20.10 to 20.12. Notifications stay packed, because the client requests
//! none.

use crate::macros::{wire_copy, wire_struct};
use crate::op::Delegation;
use crate::{Bitmap, Bytes, Filehandle, List, StateOwner, Stateid};

pub(crate) const NOTIFICATIONS_MAX: usize = 1024;

wire_copy! {
    pub struct Notify<'a> { pub mask: Bitmap, pub values: Bytes<'a, 65_536> }
}

wire_struct! {
    pub struct CbNotifyArgs<'a> {
        pub stateid: Stateid,
        pub handle: Filehandle,
        pub changes: List<Notify<'a>, NOTIFICATIONS_MAX>,
    }
}

wire_copy! {
    pub struct CbPushDelegArgs<'a> { pub handle: Filehandle, pub delegation: Delegation<'a> }
    pub struct CbWantsCancelledArgs { pub contended: bool, pub resourced: bool }
    pub struct CbNotifyLockArgs<'a> { pub handle: Filehandle, pub owner: StateOwner<'a> }
}

wire_struct! {
    pub struct CbNotifyDeviceidArgs<'a> { pub changes: List<Notify<'a>, NOTIFICATIONS_MAX> }
}
