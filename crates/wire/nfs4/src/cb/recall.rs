//! CB_GETATTR, CB_RECALL, CB_RECALL_ANY and CB_RECALL_SLOT (RFC 8881 §20.1, 20.2, 20.6 and 20.8).

use crate::macros::wire_copy;
use crate::{Bitmap, Fattr, Filehandle, SlotId, Stateid};

wire_copy! {
    pub struct CbGetattrArgs { pub handle: Filehandle, pub wanted: Bitmap }
    pub struct CbGetattrOk<'a> { pub attrs: Fattr<'a> }

    pub struct CbRecallArgs {
        pub stateid: Stateid,
        /// The server will truncate the file: the client need not write data back.
        pub truncate: bool,
        pub handle: Filehandle,
    }

    pub struct CbRecallAnyArgs { pub objects_to_keep: u32, pub type_mask: Bitmap }
    pub struct CbRecallSlotArgs { pub target_highest_slot: SlotId }
}
