//! CB_GETATTR, CB_RECALL, CB_RECALL_ANY and CB_RECALL_SLOT (RFC 8881, sections 20.1, 20.2, 20.6 and
//! 20.8).

use crate::macros::wire_struct;
use crate::{Bitmap, Fattr, Filehandle, SlotId, Stateid};

wire_struct! {
    /// `CB_GETATTR4args`.
    #[derive(Copy)]
    pub struct CbGetattrArgs {
        /// The file.
        pub handle: Filehandle,
        /// Which attributes.
        pub wanted: Bitmap,
    }
}

wire_struct! {
    /// `CB_GETATTR4resok`.
    #[derive(Copy)]
    pub struct CbGetattrOk<'a> {
        /// Those that there are.
        pub attrs: Fattr<'a>,
    }
}

wire_struct! {
    /// `CB_RECALL4args`.
    #[derive(Copy)]
    pub struct CbRecallArgs {
        /// The delegation.
        pub stateid: Stateid,
        /// Whether the file is to be truncated, so that nothing need be written back.
        pub truncate: bool,
        /// The file.
        pub handle: Filehandle,
    }
}

wire_struct! {
    /// `CB_RECALL_ANY4args` and `CB_RECALLABLE_OBJ_AVAIL4args`.
    #[derive(Copy)]
    pub struct CbRecallAnyArgs {
        /// How many may be kept.
        pub keep: u32,
        /// Of which kinds.
        pub kinds: Bitmap,
    }
}

wire_struct! {
    /// `CB_RECALL_SLOT4args`.
    #[derive(Copy)]
    pub struct CbRecallSlotArgs {
        /// The highest slot that the client should use.
        pub target_highest_slot: SlotId,
    }
}
