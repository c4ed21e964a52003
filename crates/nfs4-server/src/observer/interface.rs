//! The one point at which each operation's call, object and result are visible together. Metrics
//! hang there, and records of what was done.

use std::any::Any;
use std::net::SocketAddr;

use vouch_vfs::{Caller, FileId};

use crate::observer::name_order::NameOrder;
use crate::state::Loss;
use crate::{Connection, ConnectionId, Export, ExportId, Flavour, Principal};

/// One operation, done.
pub struct Observation<'a> {
    /// Over which connection it came.
    pub connection: &'a Connection,
    /// Who called.
    pub principal: &'a Principal,
    /// Under which flavour.
    pub flavour: Flavour,
    /// Encryption type of the Kerberos context (RFC 3961's numbers).
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
    /// What else a record of it tells; none unless it was wanted.
    pub told: Option<Told<'a>>,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes written to files.
    pub bytes_written: u64,
}

/// What a record tells beyond what is counted.
#[derive(Clone, Copy)]
pub struct Told<'a> {
    /// The export of the current filehandle before the operation.
    pub export: Option<&'a Export>,
    /// With whose rights it was done.
    pub caller: Option<&'a Caller>,
    /// The file of the saved filehandle.
    pub saved: Option<&'a FileId>,
    /// The file of the current filehandle after the operation.
    pub after: Option<&'a FileId>,
    /// What was asked.
    pub asked: Asked<'a>,
    /// How far it is.
    pub stage: Stage,
    /// Access granted, of ACCESS and OPEN: the bits of [`Asked::access`]. Of OPEN also
    /// [`asked::CREATE`] where it has made the file, and [`asked::TRUNCATE`] where it has
    /// emptied one.
    pub granted: Option<u32>,
    /// Of CLOSE and DELEGRETURN: what was done since the open, or since the close before.
    pub totals: Option<Totals>,
    /// Of SETATTR: the user and the group that it sets, if they are known here.
    pub new_owner: (Option<u32>, Option<u32>),
    /// What the observer made of it when it was done: [`Observer::named`], [`Observer::noted`].
    /// None of what is told as soon as it is done.
    pub named: Option<&'a Named>,
}

/// What has become of a name. Directories are named by their identities, names are those in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming<'a> {
    /// It leads to this file, which was made.
    Found(&'a FileId, (&'a FileId, &'a [u8])),
    /// It is a further one of a file.
    Linked(&'a FileId, (&'a FileId, &'a [u8])),
    /// It is no more; and which file had it.
    Removed(&'a FileId, (&'a FileId, &'a [u8])),
    /// A file has the second in place of the first.
    Renamed(&'a FileId, (&'a FileId, &'a [u8]), (&'a FileId, &'a [u8])),
}

/// What an observer makes of an operation when it is done, kept until it is told.
pub type Named = Box<dyn Any + Send>;

/// What was read and written by one open of one owner, and by the delegation that came with it.
/// Operations that aren't wanted are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Since the open, milliseconds.
    pub open_ms: u64,
}

/// An open, or a delegation, that its client did not end. Told if [`Observer::wants`] OPEN, with
/// what is known of who made it.
pub struct Lost<'a> {
    /// Over which connection it was made; that may be gone.
    pub connection: ConnectionId,
    /// From where.
    pub peer: SocketAddr,
    /// Who made it.
    pub principal: &'a Principal,
    /// Under which flavour.
    pub flavour: Flavour,
    /// Encryption type of the Kerberos context (RFC 3961's numbers).
    pub enctype: Option<u32>,
    /// Minor version.
    pub minor: u32,
    /// The export.
    pub export: &'a Export,
    /// With whose rights.
    pub caller: &'a Caller,
    /// The file.
    pub file: &'a FileId,
    /// Whether it was a delegation.
    pub delegation: bool,
    /// What was done since the open, or since the close before.
    pub totals: Totals,
    /// Why it ended.
    pub why: Loss,
}

/// An export that was asked for by somebody whom it is not for.
pub struct Denied<'a> {
    /// Over which connection.
    pub connection: &'a Connection,
    /// Who called.
    pub principal: &'a Principal,
    /// Under which flavour.
    pub flavour: Flavour,
    /// Encryption type of the Kerberos context (RFC 3961's numbers).
    pub enctype: Option<u32>,
    /// Which.
    pub export: &'a Export,
    /// Why.
    pub why: Denial,
}

/// Why an export is not for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It is not for this client.
    Client,
    /// The client calls from a port that anybody may use.
    Port,
    /// Who calls is nobody here.
    Caller,
}

/// What an operation's arguments say of names, access and place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// The name that it is about: in the current directory; of RENAME in the saved one.
    pub name: Option<&'a [u8]>,
    /// The new name in the current directory, of RENAME and LINK.
    pub new_name: Option<&'a [u8]>,
    /// Access: the bits of ACCESS (RFC 8881, section 18.1), and those of [`asked`].
    pub access: Option<u32>,
    /// Where data begins.
    pub offset: Option<u64>,
    /// The mode that SETATTR sets, as the client sent it; of one that sets some of its bits, those.
    pub mode: Option<u32>,
}

impl Asked<'_> {
    /// With [`asked::UNOPENED`] if so, where access is asked for.
    pub(crate) fn unopened_if(mut self, unopened: bool) -> Self {
        if unopened {
            self.access = self.access.map(|access| access | asked::UNOPENED);
        }
        self
    }
}

/// How far what an operation asked for is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Done with, one way or the other.
    #[default]
    Whole,
    /// It goes on in the background (COPY: RFC 7862, section 15.2.3), and is told once more at its
    /// end.
    Begun,
    /// What went on in the background has ended, with this status.
    Ended,
    /// It was stopped before its end: by its client, or with it.
    Stopped,
}

/// Bits of [`Asked::access`] beside those of ACCESS.
pub mod asked {
    /// OPEN may make the file.
    pub const CREATE: u32 = 0x1000;
    /// The file gets another size; by OPEN: one that is there is emptied.
    pub const TRUNCATE: u32 = 0x2000;
    /// Not by an open of the caller's: by a special stateid, by another's, or by a delegation that
    /// has not been used so since the open or the last close.
    pub const UNOPENED: u32 = 0x4000;
    /// The mode is set.
    pub const MODE: u32 = 0x01_0000;
    /// Owner or group are.
    pub const OWNER: u32 = 0x02_0000;
    /// An ACL is.
    pub const ACL: u32 = 0x04_0000;
    /// Times are.
    pub const TIMES: u32 = 0x08_0000;
    /// Other attributes are.
    pub const OTHER: u32 = 0x10_0000;
    /// In the bits from here on: the type that CREATE makes, by its number (RFC 8881, section
    /// 5.8.1.2).
    pub const TYPE_SHIFT: u32 = 28;
}

/// Sees every operation. Called on the hot path.
pub trait Observer: Send + Sync {
    /// Whether [`Observation::told`] is wanted of this operation.
    fn wants(&self, _op: u32) -> bool {
        false
    }

    /// Whether an operation on this export may be done now: asked before, and answered SERVERFAULT
    /// if not.
    fn admits(&self, _op: u32, _export: ExportId) -> bool {
        true
    }

    /// Where the observer wants to know of changes of names in the order in which they are made:
    /// what keeps that of an export.
    fn name_order(&self, _export: ExportId) -> Option<&NameOrder> {
        None
    }

    /// A name was changed. Changes of an export that has a [`NameOrder`] are told here as soon as
    /// they are made and in their order, also if the operation fails after all; what it returns
    /// comes back with the operation, which is told when its change is on the disk.
    fn named(&self, _export: &Export, _op: u32, _naming: &Naming<'_>) -> Option<Named> {
        None
    }

    /// An operation is done that is told later, with a change before it or of its own, and may fail
    /// until then. What depends on when it is done, as paths do, is to be found out here: what
    /// it returns comes back with the operation. Not asked where [`Observer::named`] has returned
    /// something.
    fn noted(&self, _observation: &Observation<'_>) -> Option<Named> {
        None
    }

    /// An operation is done, its result encoded, the reply not yet sent; what it changed is on the
    /// disk, if its export wants that.
    fn operation(&self, observation: &Observation<'_>);

    /// An export was asked for by somebody whom it is not for. Each time: who calls bounds what he
    /// makes of it.
    fn denied(&self, _denied: &Denied<'_>) {}

    /// An open or a delegation ended, and its client had no part in it.
    fn lost(&self, _lost: &Lost<'_>) {}
}

/// Looks away.
pub struct NoObserver;

impl Observer for NoObserver {
    fn operation(&self, _: &Observation<'_>) {}
}
