use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use parking_lot::Mutex;
use vouch_daemon::rate_limit::Throttle;
use vouch_nfs4_server::ClientCertificate;
use vouch_rpc_tls::credentials::{ServerCredentials, ServerFiles};
use vouch_rpc_tls::{CertificateDer, PeerCertificate};

use super::certificate_map::Holder;
use super::error::TlsServiceError;
use super::live_credentials::{self, LiveCredentials, days_left};
use crate::clock;
use crate::exports::list_check::CheckedTls;
use crate::limits::{HANDSHAKES_MAX, HANDSHAKES_PER_ADDRESS_MAX};
use crate::monitoring::counter::Counter;
use crate::transport::connection_quota::ConnectionQuota;

#[derive(Clone, Debug)]
pub struct TlsConfig {
    pub files: ServerFiles,
    pub certificate_map: Option<PathBuf>,
    /// The kernel seals, where it can.
    pub by_kernel: bool,
}

pub(crate) struct Tls {
    pub(crate) live: LiveCredentials<Holder>,
    by_kernel: bool,
    domain: String,
    lines: Mutex<Throttle>,
    handshaking: ConnectionQuota,
    pub(crate) in_handshake: std::sync::atomic::AtomicUsize,
    pub(crate) handshakes: Counter,
    pub(crate) handshakes_failed: Counter,
    pub(crate) refused_weak: Counter,
}

impl Tls {
    pub(crate) fn is_by_kernel(&self) -> bool {
        self.by_kernel
    }

    pub(crate) fn open(config: TlsConfig, domain: String) -> Result<Self, TlsServiceError> {
        let TlsConfig { files, certificate_map, by_kernel } = config;
        Ok(Tls {
            live: LiveCredentials::open(files, certificate_map, ServerCredentials::load)?,
            by_kernel,
            domain,
            lines: Mutex::new(Throttle::of_lines()),
            handshaking: ConnectionQuota::default(),
            in_handshake: 0.into(),
            handshakes: Counter::default(),
            handshakes_failed: Counter::default(),
            refused_weak: Counter::default(),
        })
    }

    pub(crate) fn reload_if_changed(&self) {
        self.lines.lock().expire(clock::mono_ms());
        self.live.reload_if_changed();
    }

    /// The current files still accept the certificate of this session now, for the same user.
    pub(crate) fn check_session(
        &self,
        chain: &[CertificateDer<'static>],
        session: &ClientCertificate,
    ) -> Result<(), String> {
        let now = self.holder(self.live.verify_again(chain)?)?;
        if now.user != session.user {
            return Err(
                "the certificate map names another holder; the client may connect again".into()
            );
        }
        Ok(())
    }

    pub(crate) fn identify(
        &self,
        certificate: &CertificateDer<'_>,
    ) -> Result<ClientCertificate, String> {
        self.holder(PeerCertificate::read(certificate).map_err(|error| error.to_string())?)
    }

    fn holder(&self, certificate: PeerCertificate) -> Result<ClientCertificate, String> {
        let user = match self.live.map().holder(&certificate, &self.domain)? {
            Holder::User(name) => Some(format!("{CERTIFICATE_USER}{name}").into()),
            Holder::Machine => None,
            Holder::Refused => return Err("the certificate map refuses the certificate".into()),
        };
        Ok(ClientCertificate { fingerprint: certificate.fingerprint, name: certificate.name, user })
    }

    pub(crate) fn begin_handshake(&self, address: IpAddr) -> bool {
        let open = self.in_handshake.load(std::sync::atomic::Ordering::Relaxed);
        if !self.handshaking.enter(
            address,
            HANDSHAKES_PER_ADDRESS_MAX,
            HANDSHAKES_MAX.saturating_sub(open),
        ) {
            return false;
        }
        self.in_handshake.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        true
    }

    pub(crate) fn end_handshake(&self, address: IpAddr) {
        self.in_handshake.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        self.handshaking.leave(address);
    }

    /// One line for each refusal, unless one peer causes many.
    pub(crate) fn log_refusal(&self, peer: SocketAddr, cause: &str) {
        if let Some(omitted) = self.lines.lock().admit(peer.ip(), clock::mono_ms()) {
            tracing::warn!(%peer, cause, omitted, "TLS refused");
        }
    }
}

pub(crate) fn check_files(config: &TlsConfig) -> Result<CheckedTls, TlsServiceError> {
    let map = config.certificate_map.as_deref();
    let credentials =
        live_credentials::check::<Holder>(&config.files, map, ServerCredentials::load)?;
    Ok(CheckedTls {
        certificate: credentials.certificate.name.to_string(),
        days_left: days_left(&credentials),
        is_revocation_overdue: live_credentials::is_revocation_overdue(&credentials),
    })
}

/// Keeps users of certificates apart from Kerberos principals.
pub(crate) const CERTIFICATE_USER: &str = "x509:";
