//! Certificates, keys, authorities, revocation lists and a certificate map, read again when the files
//! change.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use vouch_rpc_tls::credentials::{CredentialError, ServerCredentials, ServerFiles};
use vouch_rpc_tls::{CertificateDer, PeerCertificate};

use super::certificate_map::{CertificateMap, ParseHolder};
use super::error::TlsServiceError;
use crate::clock;
use crate::monitoring::counter::Counter;

pub(crate) type Load = fn(&ServerFiles) -> Result<ServerCredentials, CredentialError>;

/// Files of a TLS service that are read but not in force.
pub(crate) struct Fresh<H> {
    credentials: ServerCredentials,
    map: CertificateMap<H>,
}

pub(crate) struct LiveCredentials<H> {
    files: ServerFiles,
    map_path: Option<PathBuf>,
    load: Load,
    credentials: RwLock<Arc<ServerCredentials>>,
    map: RwLock<Arc<CertificateMap<H>>>,
    seen: Mutex<Vec<Option<SystemTime>>>,
    warned: Mutex<HashMap<Warning, u64>>,
    pub(crate) reloads: Counter,
    pub(crate) reloads_failed: Counter,
}

impl<H: ParseHolder> LiveCredentials<H> {
    pub(crate) fn open(
        files: ServerFiles,
        map_path: Option<PathBuf>,
        load: Load,
    ) -> Result<Self, TlsServiceError> {
        let seen = changes(&files, map_path.as_deref());
        let Fresh { credentials, map } = read(&files, map_path.as_deref(), load)?;
        let live = LiveCredentials {
            files,
            map_path,
            load,
            credentials: RwLock::new(Arc::new(credentials)),
            map: RwLock::new(Arc::new(map)),
            seen: Mutex::new(seen),
            warned: Mutex::default(),
            reloads: Counter::default(),
            reloads_failed: Counter::default(),
        };
        live.warn_of_expiry();
        Ok(live)
    }

    pub(crate) fn credentials(&self) -> Arc<ServerCredentials> {
        self.credentials.read().clone()
    }

    pub(crate) fn map(&self) -> Arc<CertificateMap<H>> {
        self.map.read().clone()
    }

    /// Reads all files anew. Nothing changes until [`LiveCredentials::apply`].
    pub(crate) fn read(&self) -> Result<Fresh<H>, TlsServiceError> {
        *self.seen.lock() = changes(&self.files, self.map_path.as_deref());
        read(&self.files, self.map_path.as_deref(), self.load)
            .inspect_err(|_| self.reloads_failed.add(1))
    }

    /// Sessions stay, and new handshakes use the new files.
    pub(crate) fn apply(&self, Fresh { credentials, map }: Fresh<H>) {
        tracing::info!(
            certificate = %credentials.certificate.name,
            fingerprint = %credentials.certificate.fingerprint_text(),
            days_left = days_left(&credentials),
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
        self.warn_of_expiry();
        if *self.seen.lock() == changes(&self.files, self.map_path.as_deref()) {
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

    /// The files in force accept the certificates of an open session now. Returns its certificate.
    pub(crate) fn verify_again(
        &self,
        chain: &[CertificateDer<'static>],
    ) -> Result<PeerCertificate, String> {
        self.credentials()
            .verify_again(chain, wall_seconds().unsigned_abs())
            .map_err(|error| error.to_string())?;
        PeerCertificate::read(chain.first().ok_or("no certificate")?)
            .map_err(|error| error.to_string())
    }

    pub(crate) fn is_revocation_overdue(&self) -> bool {
        is_revocation_overdue(&self.credentials())
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
                    tracing::warn!(%certificate, days_left = days_left(&credentials), "the TLS certificate expires soon; renew it");
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
}

fn read<H: ParseHolder>(
    files: &ServerFiles,
    map: Option<&Path>,
    load: Load,
) -> Result<Fresh<H>, TlsServiceError> {
    Ok(Fresh { credentials: load(files)?, map: read_map(map)? })
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

fn read_map<H: ParseHolder>(path: Option<&Path>) -> Result<CertificateMap<H>, TlsServiceError> {
    let Some(path) = path else { return Ok(CertificateMap::default()) };
    let fault = |error: String| TlsServiceError::Map { path: path.to_owned(), error };
    vouch_trust::warn_if_changeable(path);
    let text =
        std::fs::read_to_string(path).map_err(|error: io::Error| fault(error.to_string()))?;
    CertificateMap::parse(&text).map_err(fault)
}

fn changes(files: &ServerFiles, map: Option<&Path>) -> Vec<Option<SystemTime>> {
    let all =
        [Some(&*files.certificate), Some(&files.key), files.client_authorities.as_deref(), map];
    let all = all.into_iter().flatten().chain(files.revoked.iter().map(PathBuf::as_path));
    all.map(|path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()).collect()
}

/// Reads the files, for a dry run.
pub(super) fn check<H: ParseHolder>(
    files: &ServerFiles,
    map: Option<&Path>,
    load: Load,
) -> Result<ServerCredentials, TlsServiceError> {
    read::<H>(files, map, load).map(|fresh| fresh.credentials)
}

pub(super) fn is_revocation_overdue(credentials: &ServerCredentials) -> bool {
    credentials.revocation_due.is_some_and(|due| due < wall_seconds())
}

pub(crate) fn days_left(credentials: &ServerCredentials) -> i64 {
    (credentials.certificate.valid.end - wall_seconds()).div_euclid(DAY_S)
}

fn wall_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

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
