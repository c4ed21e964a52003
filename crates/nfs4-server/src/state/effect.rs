//! Side effects that the caller of the state must carry out.

use std::net::IpAddr;
use std::sync::Arc;

use vouch_nfs4::cb::OffloadInfo;
use vouch_nfs4::{SessionId, SlotId, SlotSeq, StateSeq, Stateid, Status, Time};

use super::id::FileKey;
use crate::access::network::Network;
use crate::{CallbackContext, CallbackId, CallbackTo};

/// Side effect to carry out after the lock is released, in order.
#[derive(Debug)]
pub(crate) enum StateEffect<F> {
    /// Encode and send this callback, then call `State::callback_done` exactly once.
    Callback(Box<OutgoingCallback>),
    /// Write this record durably before sending any reply to a call that came at or after the call
    /// with this effect. Replaces a record with the same key.
    Persist {
        /// Key.
        key: Vec<u8>,
        /// Encoded `RecoveryRecord`.
        value: Vec<u8>,
    },
    /// Delete this record. Need not be durable at once.
    Forget {
        /// Key.
        key: Vec<u8>,
    },
    /// Delete all records of the previous instance that were not persisted again: the grace period
    /// is over. Must be durable before any reply that grace would have refused (RFC 8881, section
    /// 8.4.3).
    GraceEnded,
    /// A client with the name of a recovery record came from another address. The client may
    /// reclaim nothing, and the administrator must be told.
    AddressMismatch {
        /// Client name.
        owner: Arc<[u8]>,
        /// Address of the caller.
        address: IpAddr,
        /// Network of the recovery record.
        from: Network,
    },
    /// Close this open file by dropping it.
    Release(F),
    /// The same, for state that the client did not return.
    Ended {
        /// The open file.
        file: F,
        /// Whether the state was a delegation.
        delegation: bool,
        /// Reason.
        why: Loss,
    },
}

/// Reason why an open or a delegation ended without its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The lease had expired, and the state was in conflict or too old.
    Expired,
    /// The client, or in 4.0 the owner, restarted.
    Restarted,
    /// A recalled delegation was not returned.
    NotReturned,
    /// The administrator ended the client or the export.
    Revoked,
}

/// Credential of callbacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallbackCredential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS with values that the client chose.
    Sys {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
        /// Machine name.
        machine: Arc<[u8]>,
    },
    /// RPCSEC_GSS with a context that the client created.
    Gss(Arc<CallbackContext>),
}

/// Arguments of CB_SEQUENCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallbackSequence {
    /// Session.
    pub session: SessionId,
    /// Sequence number of the slot.
    pub seq: SlotSeq,
    /// Slot.
    pub slot: SlotId,
    /// Highest slot in use.
    pub highest_slot: SlotId,
}

/// A callback to encode and send.
#[derive(Clone, Debug)]
pub(crate) struct OutgoingCallback {
    /// Id for `State::callback_done`.
    pub id: CallbackId,
    /// Destination.
    pub to: CallbackTo,
    /// Minor version of the CB_COMPOUND.
    pub minor: u32,
    /// RPC program at the client.
    pub program: u32,
    /// `callback_ident` of the CB_COMPOUND: 0 in 4.1.
    pub ident: u32,
    /// Credential.
    pub credential: CallbackCredential,
    /// CB_SEQUENCE, first in the CB_COMPOUND; none in 4.0.
    pub sequence: Option<CallbackSequence>,
    /// Operation.
    pub op: CallbackOp,
    /// Timeout for the answer, milliseconds.
    pub timeout_ms: u64,
}

/// Operation of a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallbackOp {
    /// CB_NULL without CB_COMPOUND: tests the path (4.0).
    Null,
    /// CB_RECALL of a delegation.
    Recall {
        /// Delegation.
        stateid: Stateid,
        /// File.
        file: FileKey,
        /// Whether the file will be truncated.
        truncate: bool,
    },
    /// CB_RECALL_ANY: the client chooses the delegations to return.
    RecallAny {
        /// Number of delegations that the client may keep.
        keep: u32,
    },
    /// CB_GETATTR of size and change attribute.
    Getattr {
        /// File.
        file: FileKey,
        /// Whether to ask for the times too.
        times: bool,
    },
    /// CB_NOTIFY_LOCK: a lock may be free.
    NotifyLock {
        /// File.
        file: FileKey,
        /// Lock owner, as the client named it.
        owner: Arc<[u8]>,
    },
    /// CB_OFFLOAD: result of a copy.
    Offload {
        /// Destination.
        file: FileKey,
        /// Copy.
        stateid: Stateid,
        /// Result.
        info: OffloadInfo,
    },
}

/// Result of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallbackAnswer {
    /// No answer, or no valid CB_COMPOUND reply.
    Unreachable,
    /// Not sent: the RPCSEC_GSS context has ended.
    NoContext,
    /// An answer.
    Answered {
        /// Status of CB_SEQUENCE; OK in 4.0, which has none.
        sequence: Status,
        /// Highest slot that the client accepts, if CB_SEQUENCE reported it.
        highest_slot: Option<SlotId>,
        /// Status of the operation.
        status: Status,
        /// Size and change attribute, if CB_GETATTR returned both.
        attributes: Option<HolderAttributes>,
    },
}

/// Attributes from the holder of a write delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HolderAttributes {
    /// Size.
    pub size: u64,
    /// Change attribute.
    pub change: u64,
    /// Access time, if the holder keeps it.
    pub accessed: Option<Time>,
    /// Modification time, if the holder keeps it.
    pub modified: Option<Time>,
}

/// Stateid with this sequence number.
pub(super) fn stateid(seq: StateSeq, other: [u8; 12]) -> Stateid {
    Stateid { seq, other }
}
