use std::collections::BTreeSet;
use std::sync::Arc;

use vouch_nfs4::{OwnerSeq, StateSeq, Stateid};

use crate::state::copy::record::Copy;
use crate::state::delegation::record::Delegation;
use crate::state::hash::Map;
use crate::state::id::{ClientKey, FileKey, FileRef, OwnerKey, StateKey};
use crate::state::lock::range::Ranges;
use crate::{ExportId, Flavour, Transport};

pub(in crate::state) struct Entry<F> {
    pub(in crate::state) client: ClientKey,
    pub(in crate::state) file: FileRef,
    /// Another path to the file may grant less.
    pub(in crate::state) export: ExportId,
    pub(in crate::state) terms: Terms,
    pub(in crate::state) opener: Option<Arc<str>>,
    pub(in crate::state) seq: StateSeq,
    pub(in crate::state) kind: Kind<F>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub flavour: Flavour,
    pub reserved_port: bool,
    pub transport: Transport,
}

pub(in crate::state) enum Kind<F> {
    Open(Open<F>),
    Lock(Lock),
    Delegation(Delegation<F>),
    /// Not freed yet. The file may be gone.
    Revoked,
    Copy(Copy),
    /// A closed 4.0 open, kept to find the owner of a retried CLOSE.
    Closed(OwnerKey),
}

pub(in crate::state) struct Open<F> {
    pub(in crate::state) owner: OwnerKey,
    pub(in crate::state) access: u8,
    pub(in crate::state) deny: u8,
    /// Combinations of access and denial so far: see `share`.
    pub(in crate::state) history: u16,
    pub(in crate::state) file: F,
    pub(in crate::state) key: FileKey,
    pub(in crate::state) locks: BTreeSet<StateKey>,
    pub(in crate::state) ranges: usize,
}

pub(in crate::state) struct Lock {
    pub(in crate::state) owner: OwnerKey,
    pub(in crate::state) open: StateKey,
    pub(in crate::state) ranges: Ranges,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OwnerKind {
    Open,
    Lock,
}

pub(in crate::state) struct Owner {
    pub(in crate::state) client: ClientKey,
    pub(in crate::state) kind: OwnerKind,
    pub(in crate::state) name: Arc<[u8]>,
    pub(in crate::state) states: Map<(FileRef, ExportId), StateKey>,
    pub(in crate::state) sequencer: Option<Box<Sequencer>>,
}

/// RFC 7530 §9.1.7.
#[derive(Default)]
pub(in crate::state) struct Sequencer {
    pub(in crate::state) last: OwnerSeq,
    pub(in crate::state) begun: bool,
    pub(in crate::state) busy: bool,
    pub(in crate::state) confirmed: bool,
    pub(in crate::state) reply: OwnerReply,
    pub(in crate::state) closed: Option<StateKey>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnerReply {
    pub op: u32,
    pub bytes: Vec<u8>,
    pub file: Option<FileKey>,
}

impl<F> Entry<F> {
    pub(in crate::state) fn held(&self) -> Option<&FileKey> {
        match &self.kind {
            Kind::Open(open) => Some(&open.key),
            Kind::Delegation(delegation) => Some(delegation.key()),
            Kind::Copy(copy) => Some(copy.file()),
            Kind::Lock(_) | Kind::Revoked | Kind::Closed(_) => None,
        }
    }

    pub(in crate::state) fn stateid(
        &self,
        boot: crate::state::id::StateidIssuer,
        key: StateKey,
    ) -> Stateid {
        crate::state::effect::stateid(self.seq, boot.other(key))
    }
}
