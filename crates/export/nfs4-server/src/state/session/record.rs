use std::net::IpAddr;

use vouch_nfs4::SessionId;
use vouch_nfs4::op::{ChannelAttrs, SequenceArgs, SequenceFlags, SequenceOk};

use crate::state::callback::record::BackSlot;
use crate::state::client::record::{BackContext, BackParms};
use crate::state::id::{ClientKey, SessionKey};
use crate::state::quota::SourceKey;
use crate::state::session::slots::SlotTable;

use crate::ConnectionId;

pub(in crate::state) struct Session {
    pub(in crate::state) id: SessionId,
    pub(in crate::state) client: ClientKey,
    pub(in crate::state) source_key: SourceKey,
    pub(in crate::state) fore: ChannelAttrs,
    pub(in crate::state) back: BackParms,
    pub(in crate::state) slots: SlotTable,
    pub(in crate::state) connections: Vec<Bound>,
    pub(in crate::state) last: ConnectionId,
    pub(in crate::state) back_slots: Vec<BackSlot>,
    pub(in crate::state) back_slots_max: u32,
    pub(in crate::state) flags: SequenceFlags,
    pub(in crate::state) context: BackContext,
    pub(in crate::state) fault: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) struct Bound {
    pub(in crate::state) connection: ConnectionId,
    pub(in crate::state) address: IpAddr,
    pub(in crate::state) fore: bool,
    pub(in crate::state) back: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceCall<'a> {
    pub args: &'a SequenceArgs,
    pub connection: ConnectionId,
    pub address: IpAddr,
    pub request_len: usize,
    pub operations: u32,
    /// A retry with another digest is refused (RFC 8881 §2.10.6.1.3.1).
    pub fingerprint: u64,
}

#[derive(Debug)]
pub(crate) enum Sequenced {
    New(Turn),
    Replay(Vec<u8>),
    Uncached(SequenceOk),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub client: ClientKey,
    pub session: SessionKey,
    pub ok: SequenceOk,
    pub response_len_max: u32,
    pub response_cached_len_max: u32,
    pub cache_this: bool,
    pub(in crate::state) source_key: SourceKey,
}
