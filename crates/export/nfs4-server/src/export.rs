use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use vouch_vfs::FileSystem;

use crate::{Flavour, Transport};

/// Part of filehandles. Derived from `fsid=` or the path: stable over restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExportId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squash {
    pub who: SquashWho,
    pub anonymous_uid: u32,
    pub anonymous_gid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SquashWho {
    Nobody,
    Root,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlavourAccess {
    pub flavour: Flavour,
    pub read_only: bool,
    pub squash: Squash,
    /// Only for AUTH_SYS and AUTH_NONE, as in the kernel's server.
    pub secure_port: bool,
    /// The machine credential may write and commit for users (SP4_MACH_CRED).
    pub machine_writes: bool,
    /// `xprtsec=` of exports(5).
    pub transport_min: Transport,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAccess {
    /// Accepted flavours, best first (RFC 8881 §18.29.3). Not empty, no duplicates.
    pub flavours: Vec<FlavourAccess>,
    /// The driver enforces it.
    pub qos: Option<Qos>,
}

/// `qos=` of an export list: what each of its clients may use, and all of them together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qos {
    pub by_principal: bool,
    pub client: Rates,
    pub all: Rates,
    /// A client that was idle may use this much of its rate at once.
    pub burst_ms: u32,
    /// Share of the server's threads beside other clients.
    pub weight: u32,
}

/// In a second; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rates {
    pub ops: Option<u64>,
    pub bytes: Option<u64>,
}

impl ClientAccess {
    pub fn under(&self, flavour: Flavour) -> Option<&FlavourAccess> {
        self.flavours.iter().find(|access| access.flavour == flavour)
    }

    pub(crate) fn refuses_transport(&self, flavour: Flavour, transport: Transport) -> bool {
        match self.under(flavour) {
            Some(under) => transport < under.transport_min,
            // For the machine that acts for users of another flavour.
            None => self.flavours.iter().all(|under| transport < under.transport_min),
        }
    }

    pub fn refuses_port(&self, flavour: Flavour, port: u16) -> bool {
        port >= 1024
            && !flavour.is_proven()
            && self.under(flavour).is_some_and(|under| under.secure_port)
    }

    pub fn machine_writes(&self, flavour: Flavour) -> bool {
        match self.under(flavour) {
            Some(under) => under.machine_writes,
            None => self.flavours.iter().any(|under| under.machine_writes),
        }
    }
}

/// Answers from memory: the driver looks names up in the background.
pub trait ClientMatcher: Send + Sync {
    /// `None` if the export does not name the client, or this is not known yet.
    fn access_for(&self, peer: SocketAddr) -> Option<Arc<ClientAccess>>;

    /// The client must retry.
    fn is_undecided(&self, _peer: SocketAddr) -> bool {
        false
    }

    /// If false, transports are not checked.
    fn demands_tls(&self) -> bool {
        false
    }

    /// If false, no client has limits.
    fn has_qos(&self) -> bool {
        false
    }

    /// The answer may end state; an outage of the name service ends nothing.
    fn is_certain(&self, peer: SocketAddr) -> bool {
        !self.is_undecided(peer)
    }
}

#[derive(Clone)]
pub struct Export {
    pub id: ExportId,
    /// Empty for the root. Each component is a valid `vouch_vfs::Name`.
    pub pseudo_path: Vec<Vec<u8>>,
    /// `None`: from the export's number, or from the file system behind a mount point.
    pub fsid: Option<(u64, u64)>,
    pub source: Arc<str>,
    pub file_system: Arc<dyn FileSystem>,
    /// `sync` of exports(5): replies wait until names and attributes are durable.
    pub sync: bool,
    pub clients: Arc<dyn ClientMatcher>,
    pub locations: Locations,
    /// False with `no_delegations`.
    pub delegations: bool,
    /// False with `no_acl`: the attributes of ACLs are not offered.
    pub acls: bool,
    /// False with `no_xattr`: extended attributes are not offered.
    pub xattrs: bool,
    /// `security_label`: clients see and set the labels of files.
    pub labels: bool,
    /// `uncacheable`: clients are asked not to cache the data of files.
    pub uncacheable: bool,
    /// `quota=`, bytes: see [`FileSystem::set_quota`].
    pub quota: Option<u64>,
    /// Servers of the same published tree, this one included, from which clients read in parallel
    /// (pNFS, RFC 8435). Empty: there are no layouts.
    pub data_servers: Vec<SocketAddr>,
}

/// RFC 8881 §11.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locations {
    pub is_referral: bool,
    pub list: Vec<Location>,
}

/// On one or several equivalent servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Host names or addresses, as `fs_location4` has them.
    pub servers: Vec<String>,
    pub path: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportsError {
    #[error("exports {0} and {1} have the same number (fsid=)")]
    SameId(Arc<str>, Arc<str>),
    #[error("exports {0} and {1} have the same pseudo path")]
    SamePath(Arc<str>, Arc<str>),
    #[error("pseudo path of export {0} has a component that is no file name")]
    BadPath(Arc<str>),
}

#[derive(Clone, Default)]
pub struct Exports {
    exports: Vec<Arc<Export>>,
}

impl Exports {
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

    pub fn all(&self) -> &[Arc<Export>] {
        &self.exports
    }
}
