//! The observer of all operations. Metrics and the audit trail use it.

use std::any::Any;
use std::net::SocketAddr;

use vouch_vfs::{Caller, FileId};

use crate::observer::name_order::NameOrder;
use crate::state::Loss;
use crate::{Connection, ConnectionId, Export, ExportId, Flavour, Principal};

/// One finished operation.
pub struct Observation<'a> {
    /// Its connection.
    pub connection: &'a Connection,
    /// The caller.
    pub principal: &'a Principal,
    /// The flavour.
    pub flavour: Flavour,
    /// Encryption type of the Kerberos context (RFC 3961).
    pub enctype: Option<u32>,
    /// Transaction id of the call.
    pub xid: u32,
    /// Minor version.
    pub minor: u32,
    /// Number of the operation.
    pub op: u32,
    /// Status.
    pub status: u32,
    /// The export of the current filehandle before the operation.
    pub export: Option<ExportId>,
    /// The file of the current filehandle before the operation.
    pub file: Option<&'a FileId>,
    /// Details; present only if [`Observer::wants`] returned true.
    pub details: Option<Details<'a>>,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes written to files.
    pub bytes_written: u64,
}

/// Details of an operation for a record.
#[derive(Clone, Copy)]
pub struct Details<'a> {
    /// The export of the current filehandle before the operation.
    pub export: Option<&'a Export>,
    /// The local identity of the caller.
    pub caller: Option<&'a Caller>,
    /// The file of the saved filehandle.
    pub saved: Option<&'a FileId>,
    /// The file of the current filehandle after the operation.
    pub after: Option<&'a FileId>,
    /// The arguments.
    pub arguments: Arguments<'a>,
    /// Progress of the operation.
    pub stage: Stage,
    /// Granted access, for ACCESS and OPEN: the bits of [`Arguments::access`]. For OPEN also
    /// [`requested::CREATE`] if it made the file, and [`requested::TRUNCATE`] if it emptied it.
    pub granted: Option<u32>,
    /// For CLOSE and DELEGRETURN: the totals since the open or the previous close.
    pub totals: Option<Totals>,
    /// For SETATTR: the user and group that it sets, if they are known.
    pub new_owner: (Option<u32>, Option<u32>),
    /// What [`Observer::name_changed`] or [`Observer::before_deferral`] returned for this operation.
    pub note: Option<&'a ObserverNote>,
}

/// A name change. A directory is given by its file id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameChange<'a> {
    /// A new name for a new file.
    Created(&'a FileId, (&'a FileId, &'a [u8])),
    /// A further name (hard link).
    Linked(&'a FileId, (&'a FileId, &'a [u8])),
    /// A removed name, with its file.
    Removed(&'a FileId, (&'a FileId, &'a [u8])),
    /// A renamed file: old name, new name.
    Renamed(&'a FileId, (&'a FileId, &'a [u8]), (&'a FileId, &'a [u8])),
}

/// The observer's note about an operation, kept until the operation is reported.
pub type ObserverNote = Box<dyn Any + Send>;

/// Bytes read and written by one open and its delegation. Only operations that the observer wants
/// are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Time since the open, milliseconds.
    pub open_ms: u64,
}

/// An open or a delegation that the server ended. It is reported if [`Observer::wants`] OPEN.
pub struct EndedState<'a> {
    /// The connection that made it; it may be gone.
    pub connection: ConnectionId,
    /// Address of the client.
    pub peer: SocketAddr,
    /// The principal that made it.
    pub principal: &'a Principal,
    /// The flavour.
    pub flavour: Flavour,
    /// Encryption type of the Kerberos context (RFC 3961's numbers).
    pub enctype: Option<u32>,
    /// Minor version.
    pub minor: u32,
    /// The export.
    pub export: &'a Export,
    /// The local identity.
    pub caller: &'a Caller,
    /// The file.
    pub file: &'a FileId,
    /// Whether it was a delegation.
    pub delegation: bool,
    /// The totals since the open or the previous close.
    pub totals: Totals,
    /// The reason.
    pub why: Loss,
}

/// A refused use of an export.
pub struct Denied<'a> {
    /// Its connection.
    pub connection: &'a Connection,
    /// Who called.
    pub principal: &'a Principal,
    /// The flavour.
    pub flavour: Flavour,
    /// Encryption type of the Kerberos context (RFC 3961's numbers).
    pub enctype: Option<u32>,
    /// The export.
    pub export: &'a Export,
    /// The reason.
    pub why: Denial,
}

/// Why a caller may not use an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The export does not name the client.
    Client,
    /// The port is not below 1024.
    Port,
    /// The caller has no local identity.
    Caller,
}

/// Arguments of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// The name in the current directory; for RENAME the old name in the saved directory.
    pub name: Option<&'a [u8]>,
    /// The new name in the current directory, for RENAME and LINK.
    pub new_name: Option<&'a [u8]>,
    /// Requested access: the bits of ACCESS (RFC 8881, section 18.1) and of [`requested`].
    pub access: Option<u32>,
    /// Offset of the data.
    pub offset: Option<u64>,
    /// The mode that SETATTR sets.
    pub mode: Option<u32>,
}

impl Arguments<'_> {
    /// Sets [`requested::UNOPENED`] if `unopened`.
    pub(crate) fn unopened_if(mut self, unopened: bool) -> Self {
        if unopened {
            self.access = self.access.map(|access| access | requested::UNOPENED);
        }
        self
    }
}

/// Progress of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Finished.
    #[default]
    Whole,
    /// It continues in the background (COPY: RFC 7862, section 15.2.3), and its end is reported
    /// separately.
    Begun,
    /// The background part has ended.
    Ended,
    /// The background part was cancelled.
    Stopped,
}

/// Bits of [`Arguments::access`] in addition to those of ACCESS.
pub mod requested {
    /// OPEN may make the file.
    pub const CREATE: u32 = 0x1000;
    /// The size changes; for OPEN: an existing file is emptied.
    pub const TRUNCATE: u32 = 0x2000;
    /// No open of the caller covers the use: a special stateid, another user's stateid, or the
    /// first use of a delegation since the open or the last close.
    pub const UNOPENED: u32 = 0x4000;
    /// SETATTR sets the mode.
    pub const MODE: u32 = 0x01_0000;
    /// SETATTR sets owner or group.
    pub const OWNER: u32 = 0x02_0000;
    /// SETATTR sets an ACL.
    pub const ACL: u32 = 0x04_0000;
    /// SETATTR sets times.
    pub const TIMES: u32 = 0x08_0000;
    /// SETATTR sets other attributes.
    pub const OTHER: u32 = 0x10_0000;
    /// From this bit on: the type that CREATE makes (RFC 8881, section 5.8.1.2).
    pub const TYPE_SHIFT: u32 = 28;
}

/// Observes every operation. The methods run on the hot path.
pub trait Observer: Send + Sync {
    /// Whether [`Observation::details`] is wanted for this operation.
    fn wants(&self, _op: u32) -> bool {
        false
    }

    /// Whether the operation may run on this export now. If not, it gets SERVERFAULT.
    fn admits(&self, _op: u32, _export: ExportId) -> bool {
        true
    }

    /// The order of an export's name changes, if the observer follows them.
    fn name_order(&self, _export: ExportId) -> Option<&NameOrder> {
        None
    }

    /// A name has changed. For exports with a [`NameOrder`] this is called at once and in order,
    /// even if the operation fails later. The returned note comes back with the operation's report.
    fn name_changed(&self, _export: &Export, _op: u32, _change: &NameChange<'_>) -> Option<ObserverNote> {
        None
    }

    /// An operation is done, but its report is delayed until its changes are durable. The observer
    /// notes what depends on the present, such as paths. It is not called if [`Observer::name_changed`]
    /// returned a note.
    fn before_deferral(&self, _observation: &Observation<'_>) -> Option<ObserverNote> {
        None
    }

    /// An operation is finished: its result is encoded, the reply is not yet sent, and its changes
    /// are durable if the export demands it.
    fn operation(&self, observation: &Observation<'_>);

    /// A caller may not use an export. It is called each time, so the observer must limit its
    /// records.
    fn denied(&self, _denied: &Denied<'_>) {}

    /// The server ended an open or a delegation.
    fn state_ended(&self, _ended: &EndedState<'_>) {}
}

/// An observer that does nothing.
pub struct NoObserver;

impl Observer for NoObserver {
    fn operation(&self, _: &Observation<'_>) {}
}
