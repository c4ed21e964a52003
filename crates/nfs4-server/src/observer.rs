//! The one point at which each operation's call, object and result are visible together. Metrics hang there, and records of what was done.

use vouch_vfs::FileId;

use crate::{Connection, ExportId, Flavour, Principal};

/// One operation, done.
pub struct Observation<'a> {
    /// Over which connection it came.
    pub connection: &'a Connection,
    /// Who called.
    pub principal: &'a Principal,
    /// Under which flavour.
    pub flavour: Flavour,
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
    /// The name that the operation was about, if any.
    pub name: Option<&'a [u8]>,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes written to files.
    pub bytes_written: u64,
}

/// Sees every operation. Called on the hot path.
pub trait Observer: Send + Sync {
    /// An operation is done, its result encoded, the reply not yet sent.
    fn operation(&self, observation: &Observation<'_>);
}

/// Looks away.
pub struct NoObserver;

impl Observer for NoObserver {
    fn operation(&self, _: &Observation<'_>) {}
}
