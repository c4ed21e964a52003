//! What state asks to be done outside of it.

use std::net::IpAddr;
use std::sync::Arc;

use vouch_nfs4::cb::OffloadInfo;
use vouch_nfs4::{SessionId, SlotId, SlotSeq, StateSeq, Stateid, Status, Time};

use super::id::FileKey;
use crate::access::network::Network;
use crate::{CallbackContext, CallbackId, CallbackTo};

/// Something to be done after the lock is released, in order.
#[derive(Debug)]
pub enum StateEffect<F> {
    /// Encode and send this callback, then call
    /// `State::callback_done` exactly once.
    Callback(Box<OutgoingCallback>),
    /// Make this record durable before any reply is sent whose call came at or after the one that
    /// made this effect. Replaces one with the same key.
    Persist {
        /// Key.
        key: Vec<u8>,
        /// Value: a `RecoveryRecord`.
        value: Vec<u8>,
    },
    /// Forget this record; need not be durable at once.
    Forget {
        /// Key.
        key: Vec<u8>,
    },
    /// Forget all records from the start that have not been persisted again: the grace period is
    /// over. Must be durable before a reply is sent that lets in what grace kept out (RFC 8881,
    /// section 8.4.3).
    GraceEnded,
    /// A client came by this name from elsewhere than the one for whom what was held under it waits
    /// to be reclaimed: it gets none of that. To be told to the administrator.
    Elsewhere {
        /// The client's name.
        owner: Arc<[u8]>,
        /// Where it calls from.
        address: IpAddr,
        /// Where the other one called from.
        from: Network,
    },
    /// An open file that state keeps no longer: close it by dropping.
    Release(F),
    /// Likewise, and the client did not give it back.
    Lost {
        /// The open file.
        file: F,
        /// Whether it was a delegation's.
        delegation: bool,
        /// How it came.
        why: Loss,
    },
}

/// Why an open or a delegation ended that its client did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Loss {
    /// The client was silent for longer than its lease, and in somebody's way or for too long.
    Expired,
    /// The client, or in 4.0 the owner, has begun anew and knows nothing of it.
    Restarted,
    /// A delegation was asked back, and did not come.
    NotReturned,
    /// The administrator has ended the client, or the export.
    Revoked,
}

/// How callbacks to a client are authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackCredential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS with these values of the client's choice.
    Sys {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
        /// Machine.
        machine: Arc<[u8]>,
    },
    /// RPCSEC_GSS, by a context that the client has made.
    Gss(Arc<CallbackContext>),
}

/// What CB_SEQUENCE says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallbackSequence {
    /// The session.
    pub session: SessionId,
    /// The slot's number.
    pub seq: SlotSeq,
    /// The slot.
    pub slot: SlotId,
    /// The highest slot in use.
    pub highest_slot: SlotId,
}

/// A callback to be encoded and sent.
#[derive(Clone, Debug)]
pub struct OutgoingCallback {
    /// Names it in `State::callback_done`.
    pub id: CallbackId,
    /// Whereto.
    pub to: CallbackTo,
    /// Minor version of the CB_COMPOUND.
    pub minor: u32,
    /// RPC program at the client.
    pub program: u32,
    /// `callback_ident` of the CB_COMPOUND: 0 in 4.1.
    pub ident: u32,
    /// Credential.
    pub credential: CallbackCredential,
    /// CB_SEQUENCE, first of the CB_COMPOUND; none in 4.0.
    pub sequence: Option<CallbackSequence>,
    /// What it is about.
    pub op: CallbackOp,
    /// How long to wait for the answer, milliseconds.
    pub timeout_ms: u64,
}

/// What a callback is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackOp {
    /// CB_NULL: whether the path works (4.0). No CB_COMPOUND.
    Null,
    /// CB_RECALL of a delegation.
    Recall {
        /// The delegation.
        stateid: Stateid,
        /// The file.
        file: FileKey,
        /// Whether the file is about to be truncated.
        truncate: bool,
    },
    /// CB_RECALL_ANY: some delegations, of the client's choice.
    RecallAny {
        /// How many it may keep.
        keep: u32,
    },
    /// CB_GETATTR of size and change.
    Getattr {
        /// The file.
        file: FileKey,
        /// And of the times that the holder keeps.
        times: bool,
    },
    /// CB_NOTIFY_LOCK: a lock may be free.
    NotifyLock {
        /// The file.
        file: FileKey,
        /// The lock owner's name at the client.
        owner: Arc<[u8]>,
    },
    /// CB_OFFLOAD: how a copy ended.
    Offload {
        /// The destination.
        file: FileKey,
        /// The copy.
        stateid: Stateid,
        /// How it ended.
        info: OffloadInfo,
    },
}

/// What became of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackAnswer {
    /// No answer, or one that was no CB_COMPOUND reply.
    Unreachable,
    /// It was not sent: the context that was to protect it is no more.
    NoContext,
    /// An answer.
    Answered {
        /// Status of CB_SEQUENCE; OK in 4.0, where there is none.
        sequence: Status,
        /// Highest slot that the client takes now, if CB_SEQUENCE said so.
        highest_slot: Option<SlotId>,
        /// Status of the operation proper.
        status: Status,
        /// Size and change attribute, if CB_GETATTR told both.
        attributes: Option<HolderAttributes>,
    },
}

/// What the holder of a write delegation says about the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderAttributes {
    /// Size.
    pub size: u64,
    /// Change attribute.
    pub change: u64,
    /// Time of access, if it keeps that.
    pub accessed: Option<Time>,
    /// Time of change, likewise.
    pub modified: Option<Time>,
}

/// The stateid of a state as it is.
pub(super) fn stateid(seq: StateSeq, other: [u8; 12]) -> Stateid {
    Stateid { seq, other }
}
