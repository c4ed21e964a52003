//! CREATE_SESSION (RFC 8881, section 18.36).

use crate::macros::{wire_bits, wire_struct};
use crate::{CallbackSec, ClientId, CreateSeq, List, SEC_PARMS_MAX, SessionId};

wire_bits! {
    /// What a session is to be, and is.
    pub struct CreateSessionFlags {
        /// Its replies survive a restart.
        PERSIST = 1,
        /// This connection carries its callbacks as well.
        CONN_BACK_CHAN = 2,
        /// This connection goes over to RDMA.
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
        /// Longest reply, RPC header included.
        pub response_len_max: u32,
        /// Longest reply that is kept for retries.
        pub response_cached_len_max: u32,
        /// Most operations of a compound.
        pub operations_max: u32,
        /// Most requests at once: how many slots.
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
        /// Its number, for retries.
        pub seq: CreateSeq,
        /// What the session is to be.
        pub flags: CreateSessionFlags,
        /// Calls.
        pub fore: ChannelAttrs,
        /// Callbacks.
        pub back: ChannelAttrs,
        /// The client's callback program.
        pub callback_program: u32,
        /// How callbacks may be authenticated.
        pub sec_parms: List<CallbackSec<'a>, SEC_PARMS_MAX>,
    }
}

wire_struct! {
    /// `CREATE_SESSION4resok`.
    #[derive(Copy)]
    pub struct CreateSessionOk {
        /// The session.
        pub session: SessionId,
        /// The call's number.
        pub seq: CreateSeq,
        /// What the session is.
        pub flags: CreateSessionFlags,
        /// Calls.
        pub fore: ChannelAttrs,
        /// Callbacks.
        pub back: ChannelAttrs,
    }
}
