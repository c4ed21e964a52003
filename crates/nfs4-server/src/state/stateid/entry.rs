//! What stateids name, and the owners behind them.

use std::collections::BTreeSet;
use std::sync::Arc;

use vouch_nfs4::{OwnerSeq, StateSeq, Stateid};

use crate::state::copy::record::Copy;
use crate::state::delegation::record::Delegation;
use crate::state::hash::Map;
use crate::state::id::{ClientKey, FileKey, FileRef, OwnerKey, StateKey};
use crate::state::lock::range::Ranges;
use crate::{ExportId, Flavour};

/// What a stateid names.
pub(in crate::state) struct Entry<F> {
    pub(in crate::state) client: ClientKey,
    pub(in crate::state) file: FileRef,
    /// The export that it was granted by, and serves by: another path to the file may grant less.
    pub(in crate::state) export: ExportId,
    /// And on these terms.
    pub(in crate::state) terms: Terms,
    /// In 4.0: who opened it, or what it hangs on, where that was proven.
    pub(in crate::state) opener: Option<Arc<str>>,
    pub(in crate::state) seq: StateSeq,
    pub(in crate::state) kind: Kind<F>,
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
pub(in crate::state) enum Kind<F> {
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
pub(in crate::state) struct Open<F> {
    pub(in crate::state) owner: OwnerKey,
    pub(in crate::state) access: u8,
    pub(in crate::state) deny: u8,
    /// Combinations of access and deny that were asked for: see `share`.
    pub(in crate::state) history: u16,
    pub(in crate::state) file: F,
    /// The file, as the client knows it.
    pub(in crate::state) key: FileKey,
    /// Lock owners' locks that began with this open.
    pub(in crate::state) locks: BTreeSet<StateKey>,
    /// Byte ranges locked by them.
    pub(in crate::state) ranges: usize,
}

/// A lock owner's locks of a file.
pub(in crate::state) struct Lock {
    pub(in crate::state) owner: OwnerKey,
    /// The open that it began with.
    pub(in crate::state) open: StateKey,
    pub(in crate::state) ranges: Ranges,
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
pub(in crate::state) struct Owner {
    pub(in crate::state) client: ClientKey,
    pub(in crate::state) kind: OwnerKind,
    pub(in crate::state) name: Arc<[u8]>,
    /// One a file and export that it is reached by.
    pub(in crate::state) states: Map<(FileRef, ExportId), StateKey>,
    /// What 4.0 needs.
    pub(in crate::state) sequencer: Option<Box<Sequencer>>,
}

/// The order of an owner's calls in 4.0 (RFC 7530, section 9.1.7).
#[derive(Default)]
pub(in crate::state) struct Sequencer {
    /// The number of the last call.
    pub(in crate::state) last: OwnerSeq,
    /// Whether there has been one.
    pub(in crate::state) begun: bool,
    /// Whether one is under way.
    pub(in crate::state) busy: bool,
    /// Whether an OPEN_CONFIRM has come, or none is needed.
    pub(in crate::state) confirmed: bool,
    pub(in crate::state) reply: OwnerReply,
    /// A closed open that is kept until the owner's next call.
    pub(in crate::state) closed: Option<StateKey>,
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
