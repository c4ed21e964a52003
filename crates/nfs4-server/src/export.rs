//! What is exported, where in the pseudo file system, and to whom under which conditions. Matching
//! a client's address to a line of a configuration is the driver's.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use vouch_vfs::FileSystem;

use crate::Flavour;

/// Number of an export, part of its filehandles: it must be the same after a restart, so it comes
/// from `fsid=` or from the path, never from a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportId(pub u32);

/// Whose rights a caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squash {
    /// Who becomes the anonymous user.
    pub who: SquashWho,
    /// User number of the anonymous user.
    pub anonymous_uid: u32,
    /// Group number of the anonymous user.
    pub anonymous_gid: u32,
}

/// Who becomes the anonymous user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SquashWho {
    /// Nobody but callers under AUTH_NONE.
    Nobody,
    /// User and group 0.
    Root,
    /// Everybody.
    All,
}

/// What a client may do with an export under one flavour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlavourAccess {
    /// The flavour.
    pub flavour: Flavour,
    /// No changes.
    pub read_only: bool,
    /// Whose rights callers get.
    pub squash: Squash,
    /// Calls under AUTH_SYS and AUTH_NONE must come from a port below 1024. Whoever proves himself
    /// by Kerberos may use any, as with the kernel's server.
    pub secure_port: bool,
    /// The credential of a client's machine may write and commit what its users have written, where
    /// state protection says so (RFC 8881, section 2.10.8.3): a machine whose key is stolen can
    /// then write to files that its users have open.
    pub machine_writes: bool,
}

/// What one client may do with an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAccess {
    /// Flavours that are let in and what each may do, best first: the order of SECINFO (RFC 8881,
    /// section 18.29.3). Not empty, none twice.
    pub flavours: Vec<FlavourAccess>,
}

impl ClientAccess {
    /// What may be done under a flavour; none if it is not let in.
    pub fn under(&self, flavour: Flavour) -> Option<&FlavourAccess> {
        self.flavours.iter().find(|access| access.flavour == flavour)
    }

    /// Whether a call from this port under this flavour is none that the export takes: ports below
    /// 1024 are the superuser's, whose word counts for his machine's.
    pub fn refuses_port(&self, flavour: Flavour, port: u16) -> bool {
        port >= 1024 && !flavour.is_proven() && self.under(flavour).is_some_and(|under| under.secure_port)
    }

    /// Whether the machine may write for its users, called under this flavour: one that is not let
    /// in itself may do what it may under any.
    pub fn machine_writes(&self, flavour: Flavour) -> bool {
        match self.under(flavour) {
            Some(under) => under.machine_writes,
            None => self.flavours.iter().any(|under| under.machine_writes),
        }
    }
}

/// Which clients get which access. Answers from memory; the driver resolves hosts and netgroups
/// beforehand or in the background.
pub trait ClientMatcher: Send + Sync {
    /// What a client at `peer` may do; none if the export is not for it, or as long as that can't
    /// be told.
    fn access_for(&self, peer: SocketAddr) -> Option<Arc<ClientAccess>>;

    /// Whether it can't be told yet what a client at `peer` may do: it is told to come again, not
    /// that there is nothing.
    fn is_undecided(&self, _peer: SocketAddr) -> bool {
        false
    }

    /// Whether what is told of a client at `peer` is good enough to end what it holds: a name
    /// service that does not answer takes nothing from anybody for good.
    fn is_certain(&self, peer: SocketAddr) -> bool {
        !self.is_undecided(peer)
    }
}

/// One export.
#[derive(Clone)]
pub struct Export {
    /// Its number.
    pub id: ExportId,
    /// Where it hangs in the pseudo file system: path components, empty for the root itself. Each
    /// is a valid name (`vouch_vfs::Name`).
    pub pseudo_path: Vec<Vec<u8>>,
    /// Major and minor number that clients see as fsid. None: from the export's number, and the
    /// file system's own where a mount point is crossed inside.
    pub fsid: Option<(u64, u64)>,
    /// Path or database that it shows, for messages and records.
    pub source: Arc<str>,
    /// The files.
    pub file_system: Arc<dyn FileSystem>,
    /// Whether replies wait until changes of names and attributes are on the disk, as the protocol
    /// demands. Where they don't (`async` of exports(5)), what was confirmed can be gone after
    /// a loss of power; writes that ask to be durable, and COMMIT, are not touched by it.
    pub sync: bool,
    /// Whom it is for.
    pub clients: Arc<dyn ClientMatcher>,
}

/// Why a set of exports can't be served together. The configuration's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportsError {
    /// Two exports have one number.
    #[error("exports {0} and {1} have the same number (fsid=)")]
    SameId(Arc<str>, Arc<str>),
    /// Two exports hang at one place.
    #[error("exports {0} and {1} have the same pseudo path")]
    SamePath(Arc<str>, Arc<str>),
    /// A component of a path is no name.
    #[error("pseudo path of export {0} has a component that is no file name")]
    BadPath(Arc<str>),
}

/// All exports, checked to fit together.
#[derive(Clone, Default)]
pub struct Exports {
    exports: Vec<Arc<Export>>,
}

impl Exports {
    /// The set of these.
    pub fn new(exports: impl IntoIterator<Item = Export>) -> Result<Self, ExportsError> {
        let mut all: Vec<Arc<Export>> = Vec::new();
        let (mut ids, mut paths) = (HashMap::new(), HashMap::new());
        for export in exports {
            if export.pseudo_path.iter().any(|part| vouch_vfs::Name::new(part).is_none()) {
                return Err(ExportsError::BadPath(export.source));
            }
            if let Some(other) = ids.insert(export.id, export.source.clone()) {
                return Err(ExportsError::SameId(other, export.source));
            }
            if let Some(other) = paths.insert(export.pseudo_path.clone(), export.source.clone()) {
                return Err(ExportsError::SamePath(other, export.source));
            }
            all.push(Arc::new(export));
        }
        Ok(Exports { exports: all })
    }

    /// The exports, in the order given.
    pub fn all(&self) -> &[Arc<Export>] {
        &self.exports
    }
}
