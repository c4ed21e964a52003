//! Stateid table entries, and their owners.

use std::collections::BTreeSet;
use std::sync::Arc;

use vouch_nfs4::{OwnerSeq, StateSeq, Stateid};

use crate::state::copy::record::Copy;
use crate::state::delegation::record::Delegation;
use crate::state::hash::Map;
use crate::state::id::{ClientKey, FileKey, FileRef, OwnerKey, StateKey};
use crate::state::lock::range::Ranges;
use crate::{ExportId, Flavour};

pub(in crate::state) struct Entry<F> {
    pub(in crate::state) client: ClientKey,
    pub(in crate::state) file: FileRef,
    /// Export that granted the state. Another path to the file may grant less.
    pub(in crate::state) export: ExportId,
    /// Terms of the grant.
    pub(in crate::state) terms: Terms,
    /// Proven principal that opened it, in 4.0.
    pub(in crate::state) opener: Option<Arc<str>>,
    pub(in crate::state) seq: StateSeq,
    pub(in crate::state) kind: Kind<F>,
}

/// Terms of a grant, which a later export list may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    /// Flavour.
    pub flavour: Flavour,
    /// Whether the source port was below 1024.
    pub reserved_port: bool,
}

pub(in crate::state) enum Kind<F> {
    Open(Open<F>),
    Lock(Lock),
    Delegation(Delegation<F>),
    /// A revoked delegation that is not freed yet. Its file may be gone.
    Revoked,
    Copy(Copy),
    /// A closed open of 4.0, kept to find the owner when CLOSE is retried.
    Closed(OwnerKey),
}

pub(in crate::state) struct Open<F> {
    pub(in crate::state) owner: OwnerKey,
    pub(in crate::state) access: u8,
    pub(in crate::state) deny: u8,
    /// Combinations of access and denial requested so far: see `share`.
    pub(in crate::state) history: u16,
    pub(in crate::state) file: F,
    /// File as the client knows it.
    pub(in crate::state) key: FileKey,
    /// Lock states that started with this open.
    pub(in crate::state) locks: BTreeSet<StateKey>,
    /// Byte ranges locked by them.
    pub(in crate::state) ranges: usize,
}

pub(in crate::state) struct Lock {
    pub(in crate::state) owner: OwnerKey,
    /// Open that the locks started with.
    pub(in crate::state) open: StateKey,
    pub(in crate::state) ranges: Ranges,
}

/// Kind of owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OwnerKind {
    /// Open owner.
    Open,
    /// Lock owner.
    Lock,
}

/// An open owner or a lock owner.
pub(in crate::state) struct Owner {
    pub(in crate::state) client: ClientKey,
    pub(in crate::state) kind: OwnerKind,
    pub(in crate::state) name: Arc<[u8]>,
    pub(in crate::state) states: Map<(FileRef, ExportId), StateKey>,
    /// Sequence numbers, for 4.0 only.
    pub(in crate::state) sequencer: Option<Box<Sequencer>>,
}

/// Sequence numbers of an owner in 4.0 (RFC 7530, section 9.1.7).
#[derive(Default)]
pub(in crate::state) struct Sequencer {
    /// Number of the last call.
    pub(in crate::state) last: OwnerSeq,
    /// Whether there was a call.
    pub(in crate::state) begun: bool,
    /// Whether a call is in progress.
    pub(in crate::state) busy: bool,
    /// Whether the owner is confirmed or needs no confirmation.
    pub(in crate::state) confirmed: bool,
    pub(in crate::state) reply: OwnerReply,
    /// Closed open, kept until the owner's next call.
    pub(in crate::state) closed: Option<StateKey>,
}

/// Cached reply of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnerReply {
    /// Operation number.
    pub op: u32,
    /// Encoded result.
    pub bytes: Vec<u8>,
    /// Current file after the operation, if it set one (OPEN).
    pub file: Option<FileKey>,
}

impl<F> Entry<F> {
    /// File as the client knows it; none for locks and for revoked or closed state.
    pub(in crate::state) fn held(&self) -> Option<&FileKey> {
        match &self.kind {
            Kind::Open(open) => Some(&open.key),
            Kind::Delegation(delegation) => Some(delegation.key()),
            Kind::Copy(copy) => Some(copy.file()),
            Kind::Lock(_) | Kind::Revoked | Kind::Closed(_) => None,
        }
    }

    pub(in crate::state) fn stateid(&self, boot: crate::state::id::Boot, key: StateKey) -> Stateid {
        crate::state::effect::stateid(self.seq, boot.other(key))
    }
}
