//! What stateids name, and the owners behind them.

use std::collections::BTreeSet;
use std::sync::Arc;

use vouch_nfs4::{OwnerSeq, StateSeq, Stateid};

use super::copy::Copy;
use super::delegation::Delegation;
use super::hash::Map;
use super::id::{ClientKey, FileKey, FileRef, OwnerKey, StateKey};
use super::range::Ranges;
use crate::{ExportId, Flavour};

/// What a stateid names.
pub(super) struct Entry<F> {
    pub(super) client: ClientKey,
    pub(super) file: FileRef,
    /// The export that it was granted by, and serves by: another path to the file may grant less.
    pub(super) export: ExportId,
    /// And on these terms.
    pub(super) terms: Terms,
    /// In 4.0: who opened it, or what it hangs on, where that was proven.
    pub(super) opener: Option<Arc<str>>,
    pub(super) seq: StateSeq,
    pub(super) kind: Kind<F>,
}

/// How the call came that something was granted to: what an export may refuse from some day on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// Under which flavour.
    pub flavour: Flavour,
    /// Whether from a port below 1024.
    pub reserved_port: bool,
}

/// Of which kind it is.
pub(super) enum Kind<F> {
    Open(Open<F>),
    Lock(Lock),
    Delegation(Delegation<F>),
    /// A delegation that was taken away and not freed yet: its file may have gone.
    Revoked,
    Copy(Copy),
    /// An open of 4.0 that was closed: kept so that a retry of the CLOSE finds its owner.
    Closed(OwnerKey),
}

/// An open.
pub(super) struct Open<F> {
    pub(super) owner: OwnerKey,
    pub(super) access: u8,
    pub(super) deny: u8,
    /// Combinations of access and deny that were asked for: see `share`.
    pub(super) history: u16,
    pub(super) file: F,
    /// The file, as the client knows it.
    pub(super) key: FileKey,
    /// Lock owners' locks that began with this open.
    pub(super) locks: BTreeSet<StateKey>,
    /// Byte ranges locked by them.
    pub(super) ranges: usize,
}

/// A lock owner's locks of a file.
pub(super) struct Lock {
    pub(super) owner: OwnerKey,
    /// The open that it began with.
    pub(super) open: StateKey,
    pub(super) ranges: Ranges,
}

/// Which kind of owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnerKind {
    /// Of opens.
    Open,
    /// Of byte-range locks.
    Lock,
}

/// An open owner or a lock owner.
pub(super) struct Owner {
    pub(super) client: ClientKey,
    pub(super) kind: OwnerKind,
    pub(super) name: Arc<[u8]>,
    /// One a file and export that it is reached by.
    pub(super) states: Map<(FileRef, ExportId), StateKey>,
    /// What 4.0 needs.
    pub(super) sequencer: Option<Box<Sequencer>>,
}

/// The order of an owner's calls in 4.0 (RFC 7530, section 9.1.7).
#[derive(Default)]
pub(super) struct Sequencer {
    /// The number of the last call.
    pub(super) last: OwnerSeq,
    /// Whether there has been one.
    pub(super) begun: bool,
    /// Whether one is under way.
    pub(super) busy: bool,
    /// Whether an OPEN_CONFIRM has come, or none is needed.
    pub(super) confirmed: bool,
    pub(super) reply: OwnerReply,
    /// A closed open that is kept until the owner's next call.
    pub(super) closed: Option<StateKey>,
}

/// The last result of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerReply {
    /// Number of the operation.
    pub op: u32,
    /// The result as it was encoded.
    pub bytes: Vec<u8>,
    /// The current file after it, if it set one (OPEN).
    pub file: Option<FileKey>,
}

impl<F> Entry<F> {
    /// The file, as the client knows it; none of what goes with something else, or is held no more.
    pub(super) fn held(&self) -> Option<&FileKey> {
        match &self.kind {
            Kind::Open(open) => Some(&open.key),
            Kind::Delegation(delegation) => Some(delegation.key()),
            Kind::Copy(copy) => Some(copy.file()),
            Kind::Lock(_) | Kind::Revoked | Kind::Closed(_) => None,
        }
    }

    pub(super) fn stateid(&self, boot: super::id::Boot, key: StateKey) -> Stateid {
        super::effect::stateid(self.seq, boot.other(key))
    }
}
