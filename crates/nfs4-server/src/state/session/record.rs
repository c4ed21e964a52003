//! Sessions, and what SEQUENCE takes and returns.

use std::net::IpAddr;

use vouch_nfs4::op::{ChannelAttrs, SequenceArgs};
use vouch_nfs4::op::{SequenceFlags, SequenceOk};
use vouch_nfs4::{SessionId, SlotId, SlotSeq};

use crate::state::callback::record::BackSlot;
use crate::state::client::record::{BackContext, BackParms};
use crate::state::id::{ClientKey, SessionKey};
use crate::state::quota::SourceKey;
use crate::state::session::slots::SlotTable;

use crate::ConnectionId;

/// A session.
pub(in crate::state) struct Session {
    pub(in crate::state) id: SessionId,
    pub(in crate::state) client: ClientKey,
    /// Whose share of the kept replies it takes.
    pub(in crate::state) source_key: SourceKey,
    pub(in crate::state) fore: ChannelAttrs,
    pub(in crate::state) back: BackParms,
    pub(in crate::state) slots: SlotTable,
    pub(in crate::state) connections: Vec<Bound>,
    /// The connection of the last SEQUENCE, known to be bound.
    pub(in crate::state) last: ConnectionId,
    pub(in crate::state) back_slots: Vec<BackSlot>,
    /// How many slots of the back channel the client takes.
    pub(in crate::state) back_slots_max: u32,
    /// Flags for SEQUENCE that are this session's.
    pub(in crate::state) flags: SequenceFlags,
    /// What those flags tell of the context of callbacks.
    pub(in crate::state) context: BackContext,
    /// Callbacks went wrong in a way that only a new session heals.
    pub(in crate::state) fault: bool,
}

/// A connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) struct Bound {
    pub(in crate::state) connection: ConnectionId,
    /// Where it comes from.
    pub(in crate::state) address: IpAddr,
    pub(in crate::state) fore: bool,
    pub(in crate::state) back: bool,
}

/// A call that begins with SEQUENCE.
#[derive(Clone, Copy, Debug)]
pub struct SequenceCall<'a> {
    /// The arguments.
    pub args: &'a SequenceArgs,
    /// Over which connection it came.
    pub connection: ConnectionId,
    /// From where that is.
    pub address: IpAddr,
    /// Bytes of the call, RPC header included.
    pub request_len: usize,
    /// Operations in the COMPOUND, SEQUENCE included.
    pub operations: u32,
    /// A digest of what makes it this request and no other: principal, number of operations, and as
    /// much of the body as is worth the while. A retry with another fingerprint is refused (RFC
    /// 8881, section 2.10.6.1.3.1).
    pub fingerprint: u64,
}

/// What SEQUENCE came to.
#[derive(Debug)]
pub enum Sequenced {
    /// A new request: execute the compound, then call [`State::finish`] with the turn, whatever
    /// happens.
    New(Turn),
    /// A retry: send these results of the COMPOUND again.
    Replay(Vec<u8>),
    /// A retry of a request whose reply was not kept: SEQUENCE answers this, the operation after it
    /// RETRY_UNCACHED_REP; nothing is executed.
    Uncached(SequenceOk),
}

/// A slot taken.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// The client.
    pub client: ClientKey,
    /// The session.
    pub session: SessionKey,
    /// What SEQUENCE answers.
    pub ok: SequenceOk,
    /// Longest reply, RPC header included; more is REP_TOO_BIG.
    pub response_len_max: u32,
    /// Longest reply if it is to be kept; more is REP_TOO_BIG_TO_CACHE.
    pub response_cached_len_max: u32,
    /// Whether the client wants the reply kept.
    pub cache_this: bool,
    /// Of whose share the reply is kept.
    pub(in crate::state) source_key: SourceKey,
}

/// The slot that a turn holds, for logs.
impl Turn {
    /// Slot and number.
    pub fn slot(&self) -> (SlotId, SlotSeq) {
        (self.ok.slot, self.ok.seq)
    }
}
