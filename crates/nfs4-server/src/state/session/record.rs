//! Session records, and the arguments and results of SEQUENCE.

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
    /// Source charged for cached replies.
    pub(in crate::state) source_key: SourceKey,
    pub(in crate::state) fore: ChannelAttrs,
    pub(in crate::state) back: BackParms,
    pub(in crate::state) slots: SlotTable,
    pub(in crate::state) connections: Vec<Bound>,
    /// Connection of the last SEQUENCE, known to be bound.
    pub(in crate::state) last: ConnectionId,
    pub(in crate::state) back_slots: Vec<BackSlot>,
    /// Back-channel slots that the client accepts.
    pub(in crate::state) back_slots_max: u32,
    pub(in crate::state) flags: SequenceFlags,
    /// State of the callback context as last reported in the flags.
    pub(in crate::state) context: BackContext,
    /// Whether callbacks failed in a way that only a new session repairs.
    pub(in crate::state) fault: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) struct Bound {
    pub(in crate::state) connection: ConnectionId,
    /// Address of the peer.
    pub(in crate::state) address: IpAddr,
    pub(in crate::state) fore: bool,
    pub(in crate::state) back: bool,
}

/// A SEQUENCE call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceCall<'a> {
    /// Arguments.
    pub args: &'a SequenceArgs,
    /// Connection of the call.
    pub connection: ConnectionId,
    /// Address of the caller.
    pub address: IpAddr,
    /// Bytes of the call with its RPC header.
    pub request_len: usize,
    /// Operations in the COMPOUND with SEQUENCE.
    pub operations: u32,
    /// Digest of the request: principal, number of operations, and part of the body. A retry with
    /// another digest is refused (RFC 8881, section 2.10.6.1.3.1).
    pub fingerprint: u64,
}

/// Result of SEQUENCE.
#[derive(Debug)]
pub(crate) enum Sequenced {
    /// A new request: execute the COMPOUND, then call [`State::finish`] in any case.
    New(Turn),
    /// A retry: send these COMPOUND results.
    Replay(Vec<u8>),
    /// A retry without a cached reply: send this SEQUENCE result, then RETRY_UNCACHED_REP. Execute
    /// nothing.
    Uncached(SequenceOk),
}

/// A slot held by a COMPOUND.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Client.
    pub client: ClientKey,
    /// Session.
    pub session: SessionKey,
    /// SEQUENCE result.
    pub ok: SequenceOk,
    /// Longest reply with RPC header. Longer replies are REP_TOO_BIG.
    pub response_len_max: u32,
    /// Longest reply to cache. Longer replies are REP_TOO_BIG_TO_CACHE.
    pub response_cached_len_max: u32,
    /// Whether the client asks for caching.
    pub cache_this: bool,
    /// Source charged for the cached reply.
    pub(in crate::state) source_key: SourceKey,
}
