//! The one point at which each operation's call, object and result are visible together. Metrics hang there, and records of what was done.

use std::net::SocketAddr;

use vouch_vfs::{Caller, FileId};

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
    /// Access granted, of ACCESS and OPEN: the bits of [`Asked::access`].
    pub granted: Option<u32>,
    /// Of CLOSE and DELEGRETURN: what was done since the open, or since the close before.
    pub totals: Option<Totals>,
}

/// What was read and written by one open of one owner, and by the delegation that came with it. Operations that aren't wanted are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Since the open, milliseconds.
    pub open_ms: u64,
}

/// An open, or a delegation, that its client did not end. Told if [`Observer::wants`] OPEN, with what is known of who made it.
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
}

/// Bits of [`Asked::access`] beside those of ACCESS.
pub mod asked {
    /// OPEN may make the file.
    pub const CREATE: u32 = 0x1000;
    /// The file gets another size.
    pub const TRUNCATE: u32 = 0x2000;
    /// The file wasn't opened: a special stateid.
    pub const UNOPENED: u32 = 0x4000;
}

/// Sees every operation. Called on the hot path.
pub trait Observer: Send + Sync {
    /// Whether [`Observation::told`] is wanted of this operation.
    fn wants(&self, _op: u32) -> bool {
        false
    }

    /// Whether an operation on this export may be done now: asked before, and answered SERVERFAULT if not.
    fn admits(&self, _op: u32, _export: ExportId) -> bool {
        true
    }

    /// An operation is done, its result encoded, the reply not yet sent; what it changed is on the disk, if its export wants that.
    fn operation(&self, observation: &Observation<'_>);

    /// An open or a delegation ended, and its client had no part in it.
    fn lost(&self, _lost: &Lost<'_>) {}
}

/// Looks away.
pub struct NoObserver;

impl Observer for NoObserver {
    fn operation(&self, _: &Observation<'_>) {}
}
