//! EXCHANGE_ID (RFC 8881, section 18.35).

use crate::macros::{wire_bits, wire_struct};
use crate::{Bytes, ClientId, ClientOwner, CreateSeq, OPAQUE_LIMIT, ServerOwner, StateProtect, StateProtectReply, Time};

wire_bits! {
    /// Features and roles of a client or server.
    pub struct ExchangeIdFlags {
        /// The client handles referrals.
        SUPP_MOVED_REFER = 1,
        /// The client handles migration.
        SUPP_MOVED_MIGR = 2,
        /// The server supports fencing.
        SUPP_FENCE_OPS = 4,
        /// Stateids are bound to principals.
        BIND_PRINC_STATEID = 0x100,
        /// The server is not a pNFS server.
        USE_NON_PNFS = 0x1_0000,
        /// The server is a pNFS metadata server.
        USE_PNFS_MDS = 0x2_0000,
        /// The server is a pNFS data server.
        USE_PNFS_DS = 0x4_0000,
        /// All pNFS roles.
        MASK_PNFS = 0x7_0000,
        /// The client updates its confirmed record.
        UPD_CONFIRMED_REC_A = 0x4000_0000,
        /// The client identifier is confirmed.
        CONFIRMED_R = 0x8000_0000,
    }
}

impl ExchangeIdFlags {
    /// Flags that a client may send. Other flags are INVAL (section 18.35.3).
    pub const FROM_CLIENT: Self = Self(0x4007_0107);
}

wire_struct! {
    /// Implementation of a client or server (`nfs_impl_id4`).
    #[derive(Copy)]
    pub struct ImplId<'a> {
        /// Domain of the implementor.
        pub domain: Bytes<'a, OPAQUE_LIMIT>,
        /// Name and version of the software.
        pub name: Bytes<'a, OPAQUE_LIMIT>,
        /// Build date.
        pub date: Time,
    }
}

wire_struct! {
    /// `EXCHANGE_ID4args`.
    pub struct ExchangeIdArgs<'a> {
        /// The client.
        pub owner: ClientOwner<'a>,
        /// Features of the client.
        pub flags: ExchangeIdFlags,
        /// Requested state protection.
        pub state_protect: StateProtect<'a>,
        /// Implementation of the client.
        pub impl_id: Option<ImplId<'a>>,
    }
}

wire_struct! {
    /// `EXCHANGE_ID4resok`.
    pub struct ExchangeIdOk<'a> {
        /// The client's number.
        pub client: ClientId,
        /// Sequence number that the client's CREATE_SESSION must send.
        pub seq: CreateSeq,
        /// Features and roles of the server.
        pub flags: ExchangeIdFlags,
        /// Granted state protection.
        pub state_protect: StateProtectReply<'a>,
        /// The server's owner, for trunking.
        pub server_owner: ServerOwner<'a>,
        /// Server scope. Servers with equal scopes share client identifiers and filehandles.
        pub server_scope: Bytes<'a, OPAQUE_LIMIT>,
        /// Implementation of the server.
        pub impl_id: Option<ImplId<'a>>,
    }
}
