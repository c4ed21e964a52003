//! The observer serves metrics and the audit trail.

use std::any::Any;
use std::net::SocketAddr;

use vouch_vfs::{Caller, FileId};

use crate::observer::name_order::NameOrder;
use crate::state::Loss;
use crate::{Connection, ConnectionId, Export, ExportId, Flavour, Principal};

pub struct Observation<'a> {
    pub connection: &'a Connection,
    pub principal: &'a Principal,
    pub flavour: Flavour,
    /// RFC 3961.
    pub enctype: Option<u32>,
    pub xid: u32,
    pub minor: u32,
    pub op: u32,
    pub status: u32,
    pub export: Option<ExportId>,
    pub file: Option<&'a FileId>,
    pub details: Option<Details<'a>>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Root acts as another user here.
    pub is_squashed: bool,
}

#[derive(Clone, Copy)]
pub struct Details<'a> {
    pub export: Option<&'a Export>,
    pub caller: Option<&'a Caller>,
    pub saved: Option<&'a FileId>,
    pub after: Option<&'a FileId>,
    pub arguments: Arguments<'a>,
    pub stage: Stage,
    /// ACCESS and OPEN: the bits of [`Arguments::access`]. OPEN adds [`requested::CREATE`] and
    /// [`requested::TRUNCATE`] for what it did.
    pub granted: Option<u32>,
    pub totals: Option<Totals>,
    pub new_owner: (Option<u32>, Option<u32>),
    pub note: Option<&'a ObserverNote>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameChange<'a> {
    Created(&'a FileId, (&'a FileId, &'a [u8])),
    Linked(&'a FileId, (&'a FileId, &'a [u8])),
    Removed(&'a FileId, (&'a FileId, &'a [u8])),
    Renamed(&'a FileId, (&'a FileId, &'a [u8]), (&'a FileId, &'a [u8])),
}

pub type ObserverNote = Box<dyn Any + Send>;

/// Only operations that the observer wants are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    pub read: u64,
    pub written: u64,
    pub open_ms: u64,
}

pub struct EndedState<'a> {
    pub connection: ConnectionId,
    pub peer: SocketAddr,
    pub principal: &'a Principal,
    pub flavour: Flavour,
    pub enctype: Option<u32>,
    pub minor: u32,
    pub export: &'a Export,
    pub caller: &'a Caller,
    pub file: &'a FileId,
    pub delegation: bool,
    pub totals: Totals,
    pub why: Loss,
    /// False: the observer does not ask the file system.
    pub may_block: bool,
}

pub struct Denied<'a> {
    pub connection: &'a Connection,
    pub principal: &'a Principal,
    pub flavour: Flavour,
    pub enctype: Option<u32>,
    pub export: &'a Export,
    pub why: Denial,
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments<'a> {
    pub name: Option<&'a [u8]>,
    pub new_name: Option<&'a [u8]>,
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
    fn wants(&self, _op: u32) -> bool {
        false
    }

    fn admits(&self, _op: u32, _export: ExportId) -> bool {
        true
    }

    /// Present if the observer follows this export's name changes.
    fn name_order(&self, _export: ExportId) -> Option<&NameOrder> {
        None
    }

    /// For exports with a [`NameOrder`]: called at once and in order, even if the operation fails
    /// later. The operation's report gets the note.
    fn name_changed(
        &self,
        _export: &Export,
        _op: u32,
        _change: &NameChange<'_>,
    ) -> Option<ObserverNote> {
        None
    }

    /// The report waits until the changes are durable, so the observer notes what depends on the
    /// present, such as paths. Not called if [`Observer::name_changed`] returned a note.
    fn before_deferral(&self, _observation: &Observation<'_>) -> Option<ObserverNote> {
        None
    }

    /// The result is encoded, the reply not yet sent.
    fn operation(&self, observation: &Observation<'_>);

    /// The observer must limit its records.
    fn denied(&self, _denied: &Denied<'_>) {}

    fn state_ended(&self, _ended: &EndedState<'_>) {}
}

pub struct NoObserver;

impl Observer for NoObserver {
    fn operation(&self, _: &Observation<'_>) {}
}
