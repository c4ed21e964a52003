//! CREATE_SESSION (RFC 8881 §18.36).

use crate::macros::{wire_bits, wire_copy, wire_struct};
use crate::{CallbackSec, ClientId, CreateSeq, List, SEC_PARMS_MAX, SessionId};

wire_bits! {
    pub struct CreateSessionFlags {
        PERSIST = 1,
        CONN_BACK_CHAN = 2,
        CONN_RDMA = 4,
    }
}

wire_copy! {
    pub struct ChannelAttrs {
        pub header_pad_size: u32,
        pub request_len_max: u32,
        pub response_len_max: u32,
        pub response_cached_len_max: u32,
        pub operations_max: u32,
        pub requests_max: u32,
        pub rdma_ird: Option<u32>,
    }
}

wire_struct! {
    pub struct CreateSessionArgs<'a> {
        pub client: ClientId,
        pub seq: CreateSeq,
        pub flags: CreateSessionFlags,
        pub fore: ChannelAttrs,
        pub back: ChannelAttrs,
        pub callback_program: u32,
        pub sec_parms: List<CallbackSec<'a>, SEC_PARMS_MAX>,
    }
}

wire_copy! {
    pub struct CreateSessionOk {
        pub session: SessionId,
        pub seq: CreateSeq,
        pub flags: CreateSessionFlags,
        pub fore: ChannelAttrs,
        pub back: ChannelAttrs,
    }
}
