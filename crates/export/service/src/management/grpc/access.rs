//! Which certificate may call which method.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tonic::Status;
use vouch_audit::record::Refusal;
use vouch_daemon::rate_limit::Throttle;
use vouch_rpc_tls::CertificateDer;
use vouch_rpc_tls::credentials::{ServerCredentials, ServerFiles};

use crate::audit::{Audit, Refused};
use crate::clock;
use crate::limits::{MANAGEMENT_CONNECTIONS_MAX, MANAGEMENT_CONNECTIONS_PER_ADDRESS_MAX};
use crate::management::administrator::certified;
use crate::management::{Administrator, Role};
use crate::monitoring::counter::Counter;
use crate::tls::{LiveCredentials, TlsServiceError};
use crate::transport::connection_quota::ConnectionQuota;

/// Orders over the network.
#[derive(Clone, Debug)]
pub struct ManagementConfig {
    pub listen: Vec<SocketAddr>,
    /// With the authorities of administrators' certificates.
    pub files: ServerFiles,
    /// Maps client certificates to roles.
    pub roles: PathBuf,
}

pub(crate) struct RemoteAccess {
    pub(crate) live: LiveCredentials<Role>,
    connections: ConnectionQuota,
    open: AtomicUsize,
    lines: Mutex<Throttle>,
    pub(crate) calls: Counter,
    pub(crate) refused: Counter,
}

pub(super) struct Place {
    access: Arc<RemoteAccess>,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.access.open.fetch_sub(1, Ordering::Relaxed);
        self.access.connections.leave(self.address);
    }
}

/// An open session of a client.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) peer: SocketAddr,
    pub(super) chain: Arc<[CertificateDer<'static>]>,
}

impl RemoteAccess {
    pub(crate) fn open(files: ServerFiles, roles: PathBuf) -> Result<Self, TlsServiceError> {
        Ok(RemoteAccess {
            live: LiveCredentials::open(files, Some(roles), ServerCredentials::load_for_http2)?,
            connections: ConnectionQuota::default(),
            open: 0.into(),
            lines: Mutex::new(Throttle::of_lines()),
            calls: Counter::default(),
            refused: Counter::default(),
        })
    }

    pub(crate) fn reload_if_changed(&self) {
        self.lines.lock().expire(clock::mono_ms());
        self.live.reload_if_changed();
    }

    /// A place for a connection.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let left = MANAGEMENT_CONNECTIONS_MAX.saturating_sub(self.open.load(Ordering::Relaxed));
        let max = MANAGEMENT_CONNECTIONS_PER_ADDRESS_MAX;
        self.connections.enter(address, max, left).then(|| {
            self.open.fetch_add(1, Ordering::Relaxed);
            Place { access: self.clone(), address }
        })
    }

    /// By the files in force now: a certificate may have been revoked, have expired or have lost its
    /// role since the session began.
    pub(super) fn permit(
        &self,
        session: &Session,
        path: &str,
        audit: Option<&Audit>,
    ) -> Result<Administrator, Status> {
        self.calls.add(1);
        let needed = needed_role(path);
        let certificate = self.live.verify_again(&session.chain).map_err(|error| {
            let cause = format!("the certificate is no longer accepted: {error}");
            self.refuse(&cause, Refused::from(Refusal::Authentication, session.peer), audit);
            Status::unauthenticated(cause)
        })?;
        let cause = match self.live.map().find(&certificate) {
            Ok(Some(role)) if *role >= needed => {
                let certificate = Box::new(certificate);
                return Ok(Administrator::Holder { certificate, peer: session.peer });
            }
            Ok(Some(role)) => {
                let method = path.rsplit('/').next().unwrap_or_default();
                format!("{} has the role {role}; {method} needs {needed}", certificate.name)
            }
            Ok(None) => format!("{} has no role", certificate.name),
            Err(why) => format!("{} has no role: {why}", certificate.name),
        };
        let refused = Refused {
            transport: certified(&certificate),
            ..Refused::from(Refusal::Authentication, session.peer)
        };
        self.refuse(&cause, refused, audit);
        Err(Status::permission_denied(cause))
    }

    pub(super) fn refuse(&self, cause: &str, refused: Refused<'_>, audit: Option<&Audit>) {
        self.refused.add(1);
        let peer = refused.peer;
        if let Some(omitted) = self.lines.lock().admit(peer.ip(), clock::mono_ms()) {
            tracing::warn!(%peer, cause, omitted, "management refused");
        }
        if let Some(audit) = audit {
            audit.refuse(&Refused { detail: &format!("management: {cause}"), ..refused });
        }
    }
}

/// Of a method of the service. All others need the highest role: a method that is forgotten here is
/// closed.
fn needed_role(path: &str) -> Role {
    match path.strip_prefix("/vouch.export.v1.Management/").unwrap_or_default() {
        "GetStatus" | "ListExports" | "CheckExports" | "ListClients" | "ListStates" => Role::Read,
        "AddExport" | "SetExport" | "RemoveExport" | "ReloadExports" => Role::Exports,
        _ => Role::All,
    }
}
