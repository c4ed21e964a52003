//! Configuration of the NFS service.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::audit::AuditConfig;
use crate::exports::sources::ExportList;
use crate::identity::{GroupSource, UnknownPrincipal};
use crate::limits::Limits;

/// What to export, where, and within which bounds.
#[derive(Clone, Debug)]
pub struct ExportConfig {
    /// Where the list of exports comes from.
    pub exports: ExportList,
    /// ConnectionQuota to answer clients on.
    pub listen: Vec<SocketAddr>,
    /// Sockets that listen already, and are to be used besides.
    pub passed: Vec<Arc<TcpListener>>,
    /// Address of the metrics and health page.
    pub metrics: Option<SocketAddr>,
    /// Directory of recovery records and keys.
    pub state: PathBuf,
    /// How long a client may be silent, and how long after a restart it may reclaim.
    pub lease: Duration,
    /// Threads; as many as there are cores if `None`.
    pub threads: Option<usize>,
    /// Minor versions spoken, lowest and highest.
    pub minor_versions: std::ops::RangeInclusive<u32>,
    /// Whether delegations are given.
    pub delegations: bool,
    /// Domain of owner strings; from idmapd.conf or the host's name if `None`.
    pub domain: Option<String>,
    /// idmapd.conf.
    pub idmap: Option<PathBuf>,
    /// Owners go out as numbers under AUTH_SYS.
    pub numeric_owners: bool,
    /// Where supplementary groups come from.
    pub groups: GroupSource,
    /// Static map from Kerberos principals to accounts.
    pub principal_map: Option<PathBuf>,
    /// What is done with principals that have no account.
    pub unknown_principals: UnknownPrincipal,
    /// Keys of the Kerberos principals nfs/HOST; the system's keytab if `None`, and no Kerberos if
    /// that has none.
    pub keytab: Option<PathBuf>,
    /// How often host names of the exports are resolved anew.
    pub resolve_every: Duration,
    /// Bounds of connections and threads.
    pub limits: Limits,
    /// What is recorded of what clients do; nothing if `None`.
    pub audit: Option<AuditConfig>,
}
