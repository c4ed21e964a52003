//! Callbacks: the operations that a server sends to a client (RFC 8881, section 20; RFC 7530,
//! section 15; RFC 7862, section 16).

mod layout;
mod notify;
mod offload;
mod recall;
mod sequence;

use vouch_xdr::{Error, Reader, Writer};

pub use layout::{CbLayoutrecallArgs, LayoutRecall, LayoutRecallFile};
pub use notify::{CbNotifyArgs, CbNotifyDeviceidArgs, CbNotifyLockArgs, CbPushDelegArgs, CbWantsCancelledArgs, Notify};
pub use offload::{CbOffloadArgs, OffloadInfo};
pub use recall::{CbGetattrArgs, CbGetattrOk, CbRecallAnyArgs, CbRecallArgs, CbRecallSlotArgs};
pub use sequence::{CbSequenceArgs, CbSequenceOk, ReferringCall, ReferringCalls};

use crate::Status;
use crate::macros::operations;
use crate::op::ILLEGAL;

/// A callback operation number (`nfs_cb_opnum4`). Any value can be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Op(pub u32);

operations! { 'a, "nfs_cb_opnum4";
    /// Reads attributes from the holder of a write delegation (RFC 8881, section 20.1).
    3 CB_GETATTR Getattr(args: CbGetattrArgs) -> Result<CbGetattrOk<'a>, Status>, 0;
    /// Recalls a delegation (section 20.2).
    4 CB_RECALL Recall(args: CbRecallArgs) -> Result<(), Status>, 0;
    /// Recalls layouts (section 20.3).
    5 CB_LAYOUTRECALL Layoutrecall(args: CbLayoutrecallArgs) -> Result<(), Status>, 1;
    /// Reports changes in a directory (section 20.4).
    6 CB_NOTIFY Notify(args: CbNotifyArgs<'a>) -> Result<(), Status>, 1;
    /// Offers a delegation (section 20.5).
    7 CB_PUSH_DELEG PushDeleg(args: CbPushDelegArgs<'a>) -> Result<(), Status>, 1;
    /// Asks the client to return some state (section 20.6).
    8 CB_RECALL_ANY RecallAny(args: CbRecallAnyArgs) -> Result<(), Status>, 1;
    /// Reports that resources are available again (section 20.7).
    9 CB_RECALLABLE_OBJ_AVAIL RecallableObjAvail(args: CbRecallAnyArgs) -> Result<(), Status>, 1;
    /// Asks the client to use fewer slots (section 20.8).
    10 CB_RECALL_SLOT RecallSlot(args: CbRecallSlotArgs) -> Result<(), Status>, 1;
    /// Uses a slot of the back channel (section 20.9).
    11 CB_SEQUENCE Sequence(args: CbSequenceArgs) -> Result<CbSequenceOk, Status>, 1;
    /// Reports that delegation requests are cancelled (section 20.10).
    12 CB_WANTS_CANCELLED WantsCancelled(args: CbWantsCancelledArgs) -> Result<(), Status>, 1;
    /// Reports that a lock may be available (section 20.11).
    13 CB_NOTIFY_LOCK NotifyLock(args: CbNotifyLockArgs<'a>) -> Result<(), Status>, 1;
    /// Reports changes of devices (section 20.12).
    14 CB_NOTIFY_DEVICEID NotifyDeviceid(args: CbNotifyDeviceidArgs<'a>) -> Result<(), Status>, 1;
    /// Reports the result of an asynchronous copy (RFC 7862, section 16.1).
    15 CB_OFFLOAD Offload(args: CbOffloadArgs) -> Result<(), Status>, 2;
}
