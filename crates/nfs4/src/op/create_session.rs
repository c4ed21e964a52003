//! CREATE_SESSION (RFC 8881, section 18.36).

use crate::macros::{wire_bits, wire_struct};
use crate::{CallbackSec, ClientId, CreateSeq, List, SEC_PARMS_MAX, SessionId};

wire_bits! {
    /// Flags of a session, as requested or granted.
    pub struct CreateSessionFlags {
        /// The reply cache survives a restart of the server.
        PERSIST = 1,
        /// This connection also carries callbacks.
        CONN_BACK_CHAN = 2,
        /// This connection changes to RDMA.
        CONN_RDMA = 4,
    }
}

wire_struct! {
    /// The limits of a channel (`channel_attrs4`).
    #[derive(Copy)]
    pub struct ChannelAttrs {
        /// Padding before data, for RDMA.
        pub header_pad_size: u32,
        /// Longest request, RPC header included.
        pub request_len_max: u32,
        /// Longest reply that the server caches for retries.
        pub response_len_max: u32,
        /// Longest reply that is kept for retries.
        pub response_cached_len_max: u32,
        /// Maximum number of operations in a compound.
        pub operations_max: u32,
        /// Maximum number of requests in flight: the number of slots.
        pub requests_max: u32,
        /// RDMA credits.
        pub rdma_ird: Option<u32>,
    }
}

wire_struct! {
    /// `CREATE_SESSION4args`.
    pub struct CreateSessionArgs<'a> {
        /// The client.
        pub client: ClientId,
        /// Sequence number of the call, for retries.
        pub seq: CreateSeq,
        /// Requested flags.
        pub flags: CreateSessionFlags,
        /// Requested limits of the fore channel.
        pub fore: ChannelAttrs,
        /// Requested limits of the back channel.
        pub back: ChannelAttrs,
        /// Number of the client's callback program.
        pub callback_program: u32,
        /// Security parameters of callbacks.
        pub sec_parms: List<CallbackSec<'a>, SEC_PARMS_MAX>,
    }
}

wire_struct! {
    /// `CREATE_SESSION4resok`.
    #[derive(Copy)]
    pub struct CreateSessionOk {
        /// The session.
        pub session: SessionId,
        /// Sequence number of the call.
        pub seq: CreateSeq,
        /// Granted flags.
        pub flags: CreateSessionFlags,
        /// Limits of the fore channel.
        pub fore: ChannelAttrs,
        /// Limits of the back channel.
        pub back: ChannelAttrs,
    }
}
