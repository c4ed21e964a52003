//! Operations that a server sends to a client (RFC 8881 §20; RFC 7530 §15; RFC 7862 §16).

mod layout;
mod notify;
mod offload;
mod recall;
mod sequence;

use vouch_xdr::{Error, Reader, Writer};

pub use layout::{CbLayoutrecallArgs, LayoutRecall, LayoutRecallFile};
pub use notify::{
    CbNotifyArgs, CbNotifyDeviceidArgs, CbNotifyLockArgs, CbPushDelegArgs, CbWantsCancelledArgs,
    Notify,
};
pub use offload::{CbOffloadArgs, OffloadInfo};
pub use recall::{CbGetattrArgs, CbGetattrOk, CbRecallAnyArgs, CbRecallArgs, CbRecallSlotArgs};
pub use sequence::{CbSequenceArgs, CbSequenceOk, ReferringCall, ReferringCalls};

use crate::Status;
use crate::macros::operations;
use crate::op::ILLEGAL;

/// `nfs_cb_opnum4`. Any value can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Op(pub u32);

operations! { 'a, "nfs_cb_opnum4";
    3 CB_GETATTR Getattr(args: CbGetattrArgs) -> Result<CbGetattrOk<'a>, Status>, 0, Protocol;
    4 CB_RECALL Recall(args: CbRecallArgs) -> Result<(), Status>, 0, Protocol;
    5 CB_LAYOUTRECALL Layoutrecall(args: CbLayoutrecallArgs) -> Result<(), Status>, 1, Protocol;
    6 CB_NOTIFY Notify(args: CbNotifyArgs<'a>) -> Result<(), Status>, 1, Protocol;
    7 CB_PUSH_DELEG PushDeleg(args: CbPushDelegArgs<'a>) -> Result<(), Status>, 1, Protocol;
    8 CB_RECALL_ANY RecallAny(args: CbRecallAnyArgs) -> Result<(), Status>, 1, Protocol;
    9 CB_RECALLABLE_OBJ_AVAIL RecallableObjAvail(args: CbRecallAnyArgs) -> Result<(), Status>, 1, Protocol;
    10 CB_RECALL_SLOT RecallSlot(args: CbRecallSlotArgs) -> Result<(), Status>, 1, Protocol;
    11 CB_SEQUENCE Sequence(args: CbSequenceArgs) -> Result<CbSequenceOk, Status>, 1, Protocol;
    12 CB_WANTS_CANCELLED WantsCancelled(args: CbWantsCancelledArgs) -> Result<(), Status>, 1, Protocol;
    13 CB_NOTIFY_LOCK NotifyLock(args: CbNotifyLockArgs<'a>) -> Result<(), Status>, 1, Protocol;
    14 CB_NOTIFY_DEVICEID NotifyDeviceid(args: CbNotifyDeviceidArgs<'a>) -> Result<(), Status>, 1, Protocol;
    15 CB_OFFLOAD Offload(args: CbOffloadArgs) -> Result<(), Status>, 2, Protocol;
}
