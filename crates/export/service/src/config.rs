use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::audit::AuditConfig;
use crate::exports::sources::ExportList;
use crate::identity::{GroupSource, IdentityLives, UnknownPrincipal};
use crate::lease::SharedState;
use crate::limits::Limits;
use crate::management::ManagementConfig;
use crate::tls::TlsConfig;
use crate::transport::proxy_header::Balancers;

#[derive(Clone, Debug)]
pub struct ExportConfig {
    pub exports: ExportList,
    /// Files with policies of witnesses, which hold for all exported trees; /etc/vouch/policy holds
    /// beside them.
    pub policies: Vec<PathBuf>,
    pub listen: Vec<SocketAddr>,
    pub passed: Vec<Arc<TcpListener>>,
    /// Addresses of this server that a client may use together (session trunking). If empty, those
    /// that it listens on.
    pub trunk: Vec<IpAddr>,
    pub metrics: Option<SocketAddr>,
    pub state: PathBuf,
    /// Key of the filehandles, shared by the heads of published trees. If `None`, an own one in the
    /// state directory.
    pub filehandle_key: Option<PathBuf>,
    /// Also the length of the grace period after a restart.
    pub lease: Duration,
    /// Worker threads; one for each core if `None`.
    pub threads: Option<usize>,
    pub minor_versions: std::ops::RangeInclusive<u32>,
    pub delegations: bool,
    /// Domain of owner strings. If `None`, that of idmapd.conf, or else of the host name.
    pub domain: Option<String>,
    pub idmap: Option<PathBuf>,
    pub numeric_owners: bool,
    pub groups: GroupSource,
    pub identity_lives: IdentityLives,
    pub principal_map: Option<PathBuf>,
    pub unknown_principals: UnknownPrincipal,
    /// File with the keys of nfs/HOST. If `None`, the system's keytab, which may be missing.
    pub keytab: Option<PathBuf>,
    /// RPC-with-TLS (RFC 9289); `None` offers none.
    pub tls: Option<TlsConfig>,
    /// Orders of administrators over the network; `None` takes none.
    pub management: Option<ManagementConfig>,
    /// Their connections begin with a header of the PROXY protocol.
    pub balancers: Vec<Balancers>,
    pub resolve_every: Duration,
    pub limits: Limits,
    pub audit: Option<AuditConfig>,
    /// For a second status socket, beside that of the state directory.
    pub runtime_directory: Option<PathBuf>,
    /// Several heads use the state directory in turn.
    pub shared: Option<SharedState>,
}
