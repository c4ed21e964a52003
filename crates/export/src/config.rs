//! Configuration of the NFS service.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::audit::AuditConfig;
use crate::exports::sources::ExportList;
use crate::identity::{GroupSource, UnknownPrincipal};
use crate::limits::Limits;

/// What to export, where, and within which limits.
#[derive(Clone, Debug)]
pub struct ExportConfig {
    /// The list of exports, or where it is.
    pub exports: ExportList,
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Further sockets that already listen, from the service manager.
    pub passed: Vec<Arc<TcpListener>>,
    /// Address of the metrics and health page.
    pub metrics: Option<SocketAddr>,
    /// Directory of recovery records and keys.
    pub state: PathBuf,
    /// Lease of clients, and length of the grace period after a restart.
    pub lease: Duration,
    /// Worker threads; one for each core if `None`.
    pub threads: Option<usize>,
    /// Minor versions that the server speaks, lowest and highest.
    pub minor_versions: std::ops::RangeInclusive<u32>,
    /// Whether the server grants delegations.
    pub delegations: bool,
    /// Domain of owner strings. If `None`, that of idmapd.conf, or else of the host name.
    pub domain: Option<String>,
    /// Path of idmapd.conf.
    pub idmap: Option<PathBuf>,
    /// Whether owners are sent as numbers under AUTH_SYS.
    pub numeric_owners: bool,
    /// Source of supplementary groups.
    pub groups: GroupSource,
    /// Path of the static map from Kerberos principals to accounts.
    pub principal_map: Option<PathBuf>,
    /// Treatment of principals without an account.
    pub unknown_principals: UnknownPrincipal,
    /// Keytab with the keys of nfs/HOST. If `None`, the system's keytab, which may be missing.
    pub keytab: Option<PathBuf>,
    /// Interval between lookups of the host names in the exports.
    pub resolve_every: Duration,
    /// Limits on connections and threads.
    pub limits: Limits,
    /// Configuration of the audit trail, if there is one.
    pub audit: Option<AuditConfig>,
}
