//! The observer serves metrics and the audit trail.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use vouch_nfs4::op::Op;
use vouch_vfs::{Caller, FileId};

use super::event::{CallOrigin, CompletedOp};
use super::name_order::NameOrder;
use crate::state::Loss;
use crate::{ConnectionId, Export, ExportId, Flavour, Principal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameChange<'a> {
    Created(&'a FileId, (&'a FileId, &'a [u8])),
    Linked(&'a FileId, (&'a FileId, &'a [u8])),
    Removed(&'a FileId, (&'a FileId, &'a [u8])),
    Renamed(&'a FileId, (&'a FileId, &'a [u8]), (&'a FileId, &'a [u8])),
}

/// Names of an operation's files at its time: other clients may move the files before the event.
/// Empty if none or unknown.
#[derive(Default)]
pub struct EventPaths {
    pub time_ns: u64,
    pub path: SharedPath,
    pub new_path: SharedPath,
    pub file: Option<FileId>,
    pub others: OtherNames,
    pub new_others: OtherNames,
}

/// A shared empty slice would make threads contend for its reference count.
#[derive(Clone, Default)]
pub struct SharedPath(pub Option<Arc<[u8]>>);

#[derive(Default)]
pub struct OtherNames {
    pub links: Vec<Arc<[u8]>>,
    pub former: Vec<Arc<[u8]>>,
    pub are_more: bool,
}

impl std::ops::Deref for SharedPath {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl From<Arc<[u8]>> for SharedPath {
    fn from(path: Arc<[u8]>) -> Self {
        SharedPath(Some(path))
    }
}

/// Only operations that the observer wants are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    pub read: u64,
    pub written: u64,
    pub open_ms: u64,
}

/// By whom a file was opened. The client may be gone.
pub struct Opener {
    pub connection: ConnectionId,
    pub peer: SocketAddr,
    pub principal: Principal,
    pub flavour: Flavour,
    pub enctype: Option<u32>,
    pub minor: u32,
}

pub struct EndedState<'a> {
    pub opener: &'a Opener,
    pub export: &'a Export,
    pub caller: &'a Caller,
    pub file: &'a FileId,
    pub delegation: bool,
    pub totals: Totals,
    pub why: Loss,
    /// False: the observer does not ask the file system.
    pub may_block: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    Client,
    Port,
    Transport,
    Caller,
    /// The name service does not answer: the call gets DELAY.
    NameService,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments<'a> {
    pub name: Option<Cow<'a, [u8]>>,
    pub new_name: Option<Cow<'a, [u8]>>,
    /// The bits of ACCESS (RFC 8881 §18.1) and of [`requested`].
    pub access: Option<u32>,
    pub offset: Option<u64>,
    pub mode: Option<u32>,
}

impl Arguments<'_> {
    pub(crate) fn unopened_if(mut self, unopened: bool) -> Self {
        if unopened {
            self.access = self.access.map(|access| access | requested::UNOPENED);
        }
        self
    }

    pub(crate) fn into_owned(self) -> Arguments<'static> {
        let own = |name: Option<Cow<'_, [u8]>>| name.map(|name| Cow::Owned(name.into_owned()));
        let Arguments { name, new_name, access, offset, mode } = self;
        Arguments { name: own(name), new_name: own(new_name), access, offset, mode }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Whole,
    /// The COPY continues in the background (RFC 7862 §15.2.3); its end is reported separately.
    Started,
    Ended,
    Stopped,
}

pub mod requested {
    pub const CREATE: u32 = 0x1000;
    /// The size changes; OPEN empties an existing file.
    pub const TRUNCATE: u32 = 0x2000;
    /// A special stateid, another user's, or the first use of a delegation since the open or the
    /// last close.
    pub const UNOPENED: u32 = 0x4000;
    pub const MODE: u32 = 0x01_0000;
    pub const OWNER: u32 = 0x02_0000;
    pub const ACL: u32 = 0x04_0000;
    pub const TIMES: u32 = 0x08_0000;
    pub const OTHER: u32 = 0x10_0000;
    /// From this bit on: the type that CREATE makes (RFC 8881 §5.8.1.2).
    pub const TYPE_SHIFT: u32 = 28;
}

pub trait Observer: Send + Sync {
    fn wants(&self, _op: Op) -> bool {
        false
    }

    fn admits(&self, _op: Op, _export: ExportId) -> bool {
        true
    }

    /// Present if the observer follows this export's name changes.
    fn name_order(&self, _export: ExportId) -> Option<&NameOrder> {
        None
    }

    /// For exports with a [`NameOrder`]: called at once and in order, even if the operation fails
    /// later. The operation's event gets the paths.
    fn name_changed(
        &self,
        _export: &Export,
        _op: Op,
        _change: &NameChange<'_>,
    ) -> Option<Box<EventPaths>> {
        None
    }

    /// For an event that waits until the changes are durable, without paths from
    /// [`Observer::name_changed`].
    fn paths(&self, _done: &CompletedOp<'_>) -> Option<Box<EventPaths>> {
        None
    }

    /// The result is encoded, the reply not yet sent. True if the reply must wait until the
    /// observer has stored the event.
    fn operation(&self, origin: &CallOrigin, done: &CompletedOp<'_>) -> bool;

    /// The observer must limit its records.
    fn denied(&self, _origin: &CallOrigin, _export: &Export, _why: Denial) {}

    fn state_ended(&self, _ended: &EndedState<'_>) {}
}

pub struct NoObserver;

impl Observer for NoObserver {
    fn operation(&self, _: &CallOrigin, _: &CompletedOp<'_>) -> bool {
        false
    }
}
