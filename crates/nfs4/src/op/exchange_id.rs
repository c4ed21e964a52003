//! EXCHANGE_ID (RFC 8881, section 18.35).

use crate::macros::{wire_bits, wire_struct};
use crate::{Bytes, ClientId, ClientOwner, CreateSeq, OPAQUE_LIMIT, ServerOwner, StateProtect, StateProtectReply, Time};

wire_bits! {
    /// What client and server can do and are.
    pub struct ExchangeIdFlags {
        /// Referrals are understood.
        SUPP_MOVED_REFER = 1,
        /// Migration is understood.
        SUPP_MOVED_MIGR = 2,
        /// Fencing is understood.
        SUPP_FENCE_OPS = 4,
        /// Stateids are bound to principals.
        BIND_PRINC_STATEID = 0x100,
        /// No pNFS.
        USE_NON_PNFS = 0x1_0000,
        /// A metadata server.
        USE_PNFS_MDS = 0x2_0000,
        /// A data server.
        USE_PNFS_DS = 0x4_0000,
        /// All that is about pNFS.
        MASK_PNFS = 0x7_0000,
        /// The client updates what is confirmed.
        UPD_CONFIRMED_REC_A = 0x4000_0000,
        /// The client id is confirmed.
        CONFIRMED_R = 0x8000_0000,
    }
}

impl ExchangeIdFlags {
    /// What a client may send; other bits are INVAL (section 18.35.3).
    pub const FROM_CLIENT: Self = Self(0x4007_0107);
}

wire_struct! {
    /// Who made the software (`nfs_impl_id4`).
    #[derive(Copy)]
    pub struct ImplId<'a> {
        /// Their domain.
        pub domain: Bytes<'a, OPAQUE_LIMIT>,
        /// Its name and version.
        pub name: Bytes<'a, OPAQUE_LIMIT>,
        /// When it was made.
        pub date: Time,
    }
}

wire_struct! {
    /// `EXCHANGE_ID4args`.
    pub struct ExchangeIdArgs<'a> {
        /// The client.
        pub owner: ClientOwner<'a>,
        /// What it can do.
        pub flags: ExchangeIdFlags,
        /// Which protection of state it wants.
        pub state_protect: StateProtect<'a>,
        /// Its maker.
        pub impl_id: Option<ImplId<'a>>,
    }
}

wire_struct! {
    /// `EXCHANGE_ID4resok`.
    pub struct ExchangeIdOk<'a> {
        /// The client's number.
        pub client: ClientId,
        /// What its CREATE_SESSION must send.
        pub seq: CreateSeq,
        /// What the server can do.
        pub flags: ExchangeIdFlags,
        /// The protection granted.
        pub state_protect: StateProtectReply<'a>,
        /// The server, for trunking.
        pub server_owner: ServerOwner<'a>,
        /// How far client ids and filehandles mean the same.
        pub server_scope: Bytes<'a, OPAQUE_LIMIT>,
        /// Its maker.
        pub impl_id: Option<ImplId<'a>>,
    }
}
