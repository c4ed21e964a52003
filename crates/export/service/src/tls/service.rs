use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use vouch_daemon::rate_limit::Throttle;
use vouch_nfs4_server::ClientCertificate;
use vouch_rpc_tls::credentials::{ServerCredentials, ServerFiles};
use vouch_rpc_tls::{CertificateDer, PeerCertificate};

use super::certificate_map::{CertificateMap, Holder};
use super::error::TlsServiceError;
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

pub(crate) struct Fresh {
    credentials: ServerCredentials,
    map: CertificateMap,
}

pub(crate) struct Tls {
    config: TlsConfig,
    domain: String,
    credentials: RwLock<Arc<ServerCredentials>>,
    map: RwLock<Arc<CertificateMap>>,
    seen: Mutex<Vec<Option<SystemTime>>>,
    warned: Mutex<HashMap<Warning, u64>>,
    lines: Mutex<Throttle>,
    handshaking: ConnectionQuota,
    pub(crate) in_handshake: std::sync::atomic::AtomicUsize,
    pub(crate) handshakes: Counter,
    pub(crate) handshakes_failed: Counter,
    pub(crate) refused_weak: Counter,
    pub(crate) reloads: Counter,
    pub(crate) reloads_failed: Counter,
}

impl Tls {
    pub(crate) fn is_by_kernel(&self) -> bool {
        self.config.by_kernel
    }

    pub(crate) fn open(config: TlsConfig, domain: String) -> Result<Self, TlsServiceError> {
        let seen = changes(&config);
        let credentials = ServerCredentials::load(&config.files)?;
        let map = read_map(config.certificate_map.as_deref())?;
        let tls = Tls {
            config,
            domain,
            credentials: RwLock::new(Arc::new(credentials)),
            map: RwLock::new(Arc::new(map)),
            seen: Mutex::new(seen),
            warned: Mutex::default(),
            lines: Mutex::new(Throttle::of_lines()),
            handshaking: ConnectionQuota::default(),
            in_handshake: 0.into(),
            handshakes: Counter::default(),
            handshakes_failed: Counter::default(),
            refused_weak: Counter::default(),
            reloads: Counter::default(),
            reloads_failed: Counter::default(),
        };
        tls.warn_of_expiry();
        Ok(tls)
    }

    pub(crate) fn credentials(&self) -> Arc<ServerCredentials> {
        self.credentials.read().clone()
    }

    /// Reads all files anew. Nothing changes until [`Tls::apply`].
    pub(crate) fn read(&self) -> Result<Fresh, TlsServiceError> {
        *self.seen.lock() = changes(&self.config);
        ServerCredentials::load(&self.config.files)
            .map_err(TlsServiceError::from)
            .and_then(|credentials| {
                Ok(Fresh { credentials, map: read_map(self.config.certificate_map.as_deref())? })
            })
            .inspect_err(|_| self.reloads_failed.add(1))
    }

    /// Sessions stay, and new handshakes use the new files.
    pub(crate) fn apply(&self, Fresh { credentials, map }: Fresh) {
        tracing::info!(
            certificate = %credentials.certificate.name,
            fingerprint = %credentials.certificate.fingerprint_text(),
            days_left = self.days_left(&credentials),
            "TLS credentials are in force"
        );
        // The credentials last: a handshake that sees them also sees the map.
        *self.map.write() = Arc::new(map);
        *self.credentials.write() = Arc::new(credentials);
        self.warned.lock().clear();
        self.reloads.add(1);
        self.warn_of_expiry();
    }

    pub(crate) fn reload_if_changed(&self) -> bool {
        self.lines.lock().expire(clock::mono_ms());
        self.warn_of_expiry();
        if *self.seen.lock() == changes(&self.config) {
            return false;
        }
        match self.read() {
            Ok(fresh) => {
                self.apply(fresh);
                true
            }
            Err(error) => {
                tracing::error!(%error, "changed TLS files cannot be used; the earlier credentials stay in force");
                false
            }
        }
    }

    /// The current files still accept the certificate of this session now, for the same user.
    pub(crate) fn check_session(
        &self,
        chain: &[CertificateDer<'static>],
        session: &ClientCertificate,
    ) -> Result<(), String> {
        let credentials = self.credentials();
        credentials
            .verify_again(chain, wall_seconds().unsigned_abs())
            .map_err(|error| error.to_string())?;
        let now = self.identify(chain.first().ok_or("no certificate")?)?;
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
        let certificate = PeerCertificate::read(certificate).map_err(|error| error.to_string())?;
        let user = match self.map.read().holder(&certificate, &self.domain)? {
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

    pub(crate) fn days_left(&self, credentials: &ServerCredentials) -> i64 {
        (credentials.certificate.valid.end - wall_seconds()).div_euclid(DAY_S)
    }

    /// Each warning once a day.
    fn warn_of_expiry(&self) {
        let (credentials, now_ms) = (self.credentials(), clock::mono_ms());
        let certificate = &credentials.certificate.name;
        for warning in
            warnings(&credentials.certificate.valid, credentials.revocation_due, wall_seconds())
        {
            let mut warned = self.warned.lock();
            if warned.get(&warning).is_some_and(|at| now_ms.saturating_sub(*at) < WARN_EACH_MS) {
                continue;
            }
            warned.insert(warning, now_ms);
            match warning {
                Warning::Expired => {
                    tracing::error!(%certificate, "the TLS certificate has expired: clients refuse it; renew it")
                }
                Warning::ExpiresSoon => {
                    tracing::warn!(%certificate, days_left = self.days_left(&credentials), "the TLS certificate expires soon; renew it");
                }
                Warning::NotYetValid => {
                    tracing::warn!(%certificate, "the TLS certificate is not valid yet; check the clock")
                }
                Warning::RevocationOverdue => {
                    tracing::warn!(
                        "a list of revoked certificates is older than its next update; it stays in force; fetch the new one"
                    )
                }
            }
        }
    }

    pub(crate) fn is_revocation_overdue(&self) -> bool {
        self.credentials().revocation_due.is_some_and(|due| due < wall_seconds())
    }
}

pub(crate) fn check_files(config: &TlsConfig) -> Result<CheckedTls, TlsServiceError> {
    let credentials = ServerCredentials::load(&config.files)?;
    read_map(config.certificate_map.as_deref())?;
    let now = wall_seconds();
    Ok(CheckedTls {
        certificate: credentials.certificate.name.to_string(),
        days_left: (credentials.certificate.valid.end - now).div_euclid(DAY_S),
        is_revocation_overdue: credentials.revocation_due.is_some_and(|due| due < now),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Warning {
    Expired,
    ExpiresSoon,
    NotYetValid,
    RevocationOverdue,
}

/// The end of a certificate is near from the last fifth of its life on, or from two weeks before.
fn warnings(
    valid: &Range<i64>,
    revocation_due: Option<i64>,
    now: i64,
) -> impl Iterator<Item = Warning> {
    let ahead = ((valid.end - valid.start) / 5).min(WARN_AHEAD_S);
    let certificate = if valid.end <= now {
        Some(Warning::Expired)
    } else if valid.end - now < ahead {
        Some(Warning::ExpiresSoon)
    } else {
        (valid.start > now).then_some(Warning::NotYetValid)
    };
    certificate
        .into_iter()
        .chain(revocation_due.filter(|due| *due < now).map(|_| Warning::RevocationOverdue))
}

pub(crate) fn read_map(path: Option<&Path>) -> Result<CertificateMap, TlsServiceError> {
    let Some(path) = path else { return Ok(CertificateMap::default()) };
    let fault = |error: String| TlsServiceError::Map { path: path.to_owned(), error };
    vouch_trust::warn_if_changeable(path);
    let text =
        std::fs::read_to_string(path).map_err(|error: io::Error| fault(error.to_string()))?;
    CertificateMap::parse(&text).map_err(fault)
}

fn changes(config: &TlsConfig) -> Vec<Option<SystemTime>> {
    let files = &config.files;
    let all = [
        Some(&files.certificate),
        Some(&files.key),
        files.client_authorities.as_ref(),
        config.certificate_map.as_ref(),
    ];
    let all = all.into_iter().flatten().chain(&files.revoked);
    all.map(|path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()).collect()
}

pub(crate) fn wall_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

/// Keeps users of certificates apart from Kerberos principals.
pub(crate) const CERTIFICATE_USER: &str = "x509:";

const DAY_S: i64 = 86_400;
const WARN_AHEAD_S: i64 = 14 * DAY_S;
const WARN_EACH_MS: u64 = Duration::from_secs(86_400).as_millis() as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_stands_alone() {
        let year = 365 * DAY_S;
        let at = |now, due| warnings(&(0..year), due, now).collect::<Vec<_>>();
        assert_eq!(at(-1, None), [Warning::NotYetValid]);
        assert_eq!(at(year - 15 * DAY_S, None), []);
        assert_eq!(
            at(year - 13 * DAY_S, Some(0)),
            [Warning::ExpiresSoon, Warning::RevocationOverdue]
        );
        assert_eq!(at(year, Some(year + 1)), [Warning::Expired]);
        assert_eq!(warnings(&(0..10), None, 9).collect::<Vec<_>>(), [Warning::ExpiresSoon]);
    }
}
