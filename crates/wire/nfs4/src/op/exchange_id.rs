//! EXCHANGE_ID (RFC 8881 §18.35).

use crate::macros::{wire_bits, wire_copy, wire_struct};
use crate::{
    Bytes, ClientId, ClientOwner, CreateSeq, OPAQUE_LIMIT, ServerOwner, StateProtect,
    StateProtectReply, Time,
};

wire_bits! {
    pub struct ExchangeIdFlags {
        SUPP_MOVED_REFER = 1,
        SUPP_MOVED_MIGR = 2,
        SUPP_FENCE_OPS = 4,
        BIND_PRINC_STATEID = 0x100,
        USE_NON_PNFS = 0x1_0000,
        USE_PNFS_MDS = 0x2_0000,
        USE_PNFS_DS = 0x4_0000,
        MASK_PNFS = 0x7_0000,
        UPD_CONFIRMED_REC_A = 0x4000_0000,
        CONFIRMED_R = 0x8000_0000,
    }
}

impl ExchangeIdFlags {
    /// Other flags are INVAL (§18.35.3).
    pub const FROM_CLIENT: Self = Self(0x4007_0107);
}

wire_copy! {
    pub struct ImplId<'a> {
        pub domain: Bytes<'a, OPAQUE_LIMIT>,
        pub name: Bytes<'a, OPAQUE_LIMIT>,
        pub date: Time,
    }
}

wire_struct! {
    pub struct ExchangeIdArgs<'a> {
        pub owner: ClientOwner<'a>,
        pub flags: ExchangeIdFlags,
        pub state_protect: StateProtect<'a>,
        pub impl_id: Option<ImplId<'a>>,
    }

    pub struct ExchangeIdOk<'a> {
        pub client: ClientId,
        /// For the client's CREATE_SESSION.
        pub seq: CreateSeq,
        pub flags: ExchangeIdFlags,
        pub state_protect: StateProtectReply<'a>,
        pub server_owner: ServerOwner<'a>,
        pub server_scope: Bytes<'a, OPAQUE_LIMIT>,
        pub impl_id: Option<ImplId<'a>>,
    }
}
