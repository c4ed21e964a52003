use std::net::IpAddr;
use std::sync::Arc;

use vouch_nfs4::cb::OffloadInfo;
use vouch_nfs4::{SessionId, SlotId, SlotSeq, StateSeq, Stateid, Status, Time};

use super::id::FileKey;
use crate::access::network::Network;
use crate::{CallbackContext, CallbackId, CallbackTo};

/// Why a client lost its state or its record, or got none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEnd {
    /// The lease had ended, and another client wanted the state, or the client stayed away too long.
    Expired { silent_ms: u64 },
    /// The record made room for those of other clients.
    Evicted,
    /// There is no room for the record of a new client.
    TableFull,
    /// A new list of exports, or the end of a file system, took its access away.
    AccessLost { ended: usize },
    /// An administrator ended the client, or state of it.
    ByAdministrator,
}

#[derive(Debug)]
pub(crate) enum StateEffect<F> {
    /// Send, then call `State::callback_done` exactly once.
    Callback(Box<OutgoingCallback>),
    /// Write durably before the reply to this call or any later one. Replaces a record with the
    /// same key.
    Persist {
        key: Vec<u8>,
        value: Vec<u8>,
    },
    /// Need not be durable at once.
    Forget {
        key: Vec<u8>,
    },
    /// Delete the earlier records that were not persisted again. Durable before any reply that
    /// grace would have refused (RFC 8881 §8.4.3).
    GraceEnded,
    /// Log that the client may reclaim nothing.
    AddressMismatch {
        owner: Arc<[u8]>,
        address: IpAddr,
        from: Network,
    },
    /// Log that a recalled delegation is not returned.
    RecallOverdue {
        owner: Arc<[u8]>,
        address: IpAddr,
        file: FileKey,
        waited_ms: u64,
        is_revoked: bool,
    },
    /// Log that a client lost its state or its record, or got none.
    ClientEnded {
        owner: Arc<[u8]>,
        address: IpAddr,
        why: ClientEnd,
    },
    /// Log that a client was refused because another one uses its name.
    NameConflict {
        owner: Arc<[u8]>,
        holder: Option<IpAddr>,
        refused: IpAddr,
        /// The holder has ended, because both have one address.
        has_ended: bool,
    },
    Release(F),
    Ended {
        file: F,
        delegation: bool,
        why: Loss,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    Expired,
    Restarted,
    NotReturned,
    Revoked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallbackCredential {
    None,
    Sys { uid: u32, gid: u32, machine: Arc<[u8]> },
    Gss(Arc<CallbackContext>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallbackSequence {
    pub session: SessionId,
    pub seq: SlotSeq,
    pub slot: SlotId,
    pub highest_slot: SlotId,
}

#[derive(Clone, Debug)]
pub(crate) struct OutgoingCallback {
    pub id: CallbackId,
    pub to: CallbackTo,
    pub minor: u32,
    pub program: u32,
    pub ident: u32,
    pub credential: CallbackCredential,
    pub sequence: Option<CallbackSequence>,
    pub op: CallbackOp,
    pub timeout_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallbackOp {
    /// CB_NULL tests the path (4.0).
    Null,
    Recall {
        stateid: Stateid,
        file: FileKey,
        truncate: bool,
    },
    RecallAny {
        keep: u32,
    },
    Getattr {
        file: FileKey,
        times: bool,
    },
    NotifyLock {
        file: FileKey,
        owner: Arc<[u8]>,
    },
    Offload {
        file: FileKey,
        stateid: Stateid,
        info: OffloadInfo,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallbackAnswer {
    Unreachable,
    NoContext,
    Answered {
        sequence: Status,
        highest_slot: Option<SlotId>,
        status: Status,
        attributes: Option<HolderAttributes>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HolderAttributes {
    pub size: u64,
    pub change: u64,
    pub accessed: Option<Time>,
    pub modified: Option<Time>,
}

pub(super) fn stateid(seq: StateSeq, other: [u8; 12]) -> Stateid {
    Stateid { seq, other }
}
