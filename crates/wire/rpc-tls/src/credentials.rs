//! Certificates, keys, authorities and revocation lists, from files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig};
use vouch_trust::{Access, Exposure};

use crate::{ALPN, ALPN_HTTP2, PeerCertificate};

/// Files of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// Includes intermediate certificates (PEM).
    pub certificate: PathBuf,
    /// Private key (PEM).
    pub key: PathBuf,
    /// Authorities of client certificates (PEM). Without them no client certificate is accepted.
    pub client_authorities: Option<PathBuf>,
    /// Revocation lists (PEM or DER) of these authorities.
    pub revoked: Vec<PathBuf>,
}

/// Files of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// Authorities of server certificates (PEM).
    pub authorities: PathBuf,
    /// Certificate with intermediate certificates, and private key (PEM).
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// Names the file, the fault and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct CredentialError {
    path: PathBuf,
    what: String,
}

/// A server's configuration.
pub struct ServerCredentials {
    /// For [`Handshake::server`](crate::Handshake::server).
    pub config: Arc<ServerConfig>,
    /// The server's own certificate.
    pub certificate: PeerCertificate,
    /// Earliest renewal of a revocation list, in seconds since 1970.
    pub revocation_due: Option<i64>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
}

impl fmt::Debug for ServerCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCredentials")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

impl ServerCredentials {
    /// Accepts an expired certificate: the caller warns about it.
    pub fn load(files: &ServerFiles) -> Result<Self, CredentialError> {
        Self::load_for(files, ALPN)
    }

    /// For gRPC, which has no handshakes of its own: any TLS library does. Each client must present a
    /// certificate, so `client_authorities` must be there.
    pub fn load_for_http2(files: &ServerFiles) -> Result<Self, CredentialError> {
        match files.client_authorities {
            Some(_) => Self::load_for(files, ALPN_HTTP2),
            None => Err(fault(&files.certificate, "needs the authorities of client certificates")),
        }
    }

    fn load_for(files: &ServerFiles, protocol: &[u8]) -> Result<Self, CredentialError> {
        let is_rpc = protocol == ALPN;
        let chain = certificates(&files.certificate)?;
        let certificate =
            PeerCertificate::read(&chain[0]).map_err(|error| fault(&files.certificate, error))?;
        let key = private_key(&files.key)?;
        let mut revocation_due = None;
        let verifier = match &files.client_authorities {
            None => None,
            Some(path) => {
                let roots = Arc::new(roots(path)?);
                let lists = revocation_lists(&files.revoked, &roots, &mut revocation_due)?;
                // A list of one authority says nothing about the certificates of another.
                let builder = WebPkiClientVerifier::builder_with_provider(roots, provider())
                    .with_crls(lists)
                    .allow_unknown_revocation_status();
                let builder = if is_rpc { builder.allow_unauthenticated() } else { builder };
                Some(builder.build().map_err(|error| fault(path, error))?)
            }
        };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| fault(&files.certificate, error))?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
            None => builder.with_no_client_auth(),
        };
        let refused = |error| {
            fault(
                &files.key,
                format!("the private key does not fit {}: {error}", files.certificate.display()),
            )
        };
        let mut config = builder.with_single_cert(chain, key).map_err(refused)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        config.enable_secret_extraction = is_rpc;
        config.ignore_client_order = true;
        // No resumption: each session proves its certificates.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(ServerCredentials { config: Arc::new(config), certificate, revocation_due, verifier })
    }

    /// True if client certificates have authorities.
    pub fn accepts_clients(&self) -> bool {
        self.verifier.is_some()
    }

    /// Verifies a client's certificate again, at `now_seconds` since 1970: it may have expired, or
    /// the files may have changed.
    pub fn verify_again(
        &self,
        chain: &[CertificateDer<'_>],
        now_seconds: u64,
    ) -> Result<(), rustls::Error> {
        let (Some(verifier), Some((first, others))) = (&self.verifier, chain.split_first()) else {
            return Err(rustls::Error::General(
                "client certificates are no longer accepted".into(),
            ));
        };
        verifier
            .verify_client_cert(
                first,
                others,
                UnixTime::since_unix_epoch(Duration::from_secs(now_seconds)),
            )
            .map(drop)
    }
}

/// Reads the files of a client.
pub fn client_config(files: &ClientFiles) -> Result<Arc<ClientConfig>, CredentialError> {
    client_config_for(files, ALPN)
}

/// For gRPC, by any TLS library.
pub fn http2_client_config(files: &ClientFiles) -> Result<Arc<ClientConfig>, CredentialError> {
    client_config_for(files, ALPN_HTTP2)
}

fn client_config_for(
    files: &ClientFiles,
    protocol: &[u8],
) -> Result<Arc<ClientConfig>, CredentialError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| fault(&files.authorities, error))?
        .with_root_certificates(roots(&files.authorities)?);
    let mut config = match &files.certificate {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let refused = |error| {
                fault(
                    key,
                    format!("the private key does not fit {}: {error}", certificate.display()),
                )
            };
            builder
                .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                .map_err(refused)?
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config.enable_secret_extraction = protocol == ALPN;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The ciphers of TLS 1.3, fastest first. All three are secure.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = CryptoProvider::clone(&vouch_tls::provider());
    let rank = |suite: CipherSuite| match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => 0,
        CipherSuite::TLS13_AES_256_GCM_SHA384 => 1,
        _ => 2,
    };
    provider.cipher_suites.retain(|suite| suite.tls13().is_some());
    provider.cipher_suites.sort_by_key(|suite| rank(suite.suite()));
    Arc::new(provider)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all =
        all.map_err(|error| fault(path, format!("the certificates cannot be read: {error}")))?;
    if all.is_empty() {
        Err(fault(
            path,
            "contains no certificate in PEM; write one that begins with BEGIN CERTIFICATE",
        ))
    } else {
        Ok(all)
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, CredentialError> {
    let metadata = std::fs::metadata(path).map_err(|error| fault(path, error))?;
    match vouch_trust::check(path, &metadata, Access::GroupRead) {
        Err(Exposure { mode: Some(_), what, cure, .. }) => {
            return Err(fault(path, format!("the private key {what}; {cure}")));
        }
        // A program that renews certificates may have a user of its own.
        Err(exposure) => tracing::warn!("private key: {exposure}"),
        Ok(()) => {}
    }
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| fault(path, format!("the private key cannot be read: {error}")))
}

fn roots(path: &Path) -> Result<RootCertStore, CredentialError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| {
            fault(path, format!("contains a certificate that is no authority: {error}"))
        })?;
    }
    Ok(roots)
}

type RevocationLists = Vec<CertificateRevocationListDer<'static>>;

fn revocation_lists(
    paths: &[PathBuf],
    roots: &Arc<RootCertStore>,
    due: &mut Option<i64>,
) -> Result<RevocationLists, CredentialError> {
    let mut lists = Vec::new();
    for path in paths {
        let bytes = std::fs::read(path).map_err(|error| fault(path, error))?;
        let found: RevocationLists = match bytes.starts_with(&[0x30]) {
            true => vec![CertificateRevocationListDer::from(bytes)],
            false => CertificateRevocationListDer::pem_slice_iter(&bytes)
                .collect::<Result<_, _>>()
                .map_err(|error| {
                    fault(path, format!("the revocation list cannot be read: {error}"))
                })?,
        };
        if found.is_empty() {
            return Err(fault(path, "contains no certificate revocation list"));
        }
        for list in &found {
            let next = crate::der::revocation_due(list)
                .ok_or_else(|| fault(path, "contains no certificate revocation list"))?;
            *due = match (*due, next) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        // The verifier of all lists does not tell which one it refuses.
        WebPkiClientVerifier::builder_with_provider(roots.clone(), provider()).with_crls(found.clone()).build().map_err(|error| {
            fault(path, format!("{error}; the list must be an X.509 CRL of version 2 with a CRL number (crlnumber of `openssl ca`)"))
        })?;
        lists.extend(found);
    }
    Ok(lists)
}

fn fault(path: &Path, what: impl ToString) -> CredentialError {
    CredentialError { path: path.to_owned(), what: what.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `openssl ca -gencrl` without `crlnumber`.
    const LIST_OF_VERSION_1: &str = "-----BEGIN X509 CRL-----
MIGdMEQwCgYIKoZIzj0EAwIwFjEUMBIGA1UEAwwLRXhhbXBsZSBORlMXDTI2MTEy
NjE1NDMzM1oYDzIwNzYwMzA4MTU0MzMzWjAKBggqhkjOPQQDAgNJADBGAiEAgbvd
CY4kyxPJy8YT+0Va/lX7VrABg9iIeeG/1bfHoOACIQDCQUwiUppbN3CyrlGcWwzI
9gYQQEJOeVb4w47drAjNhg==
-----END X509 CRL-----
";

    #[test]
    fn unusable_revocation_list_is_named_with_its_cure() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("clients.crl");
        std::fs::write(&path, LIST_OF_VERSION_1).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(
                rcgen::CertificateParams::new(Vec::new())
                    .unwrap()
                    .self_signed(&key)
                    .unwrap()
                    .der()
                    .clone(),
            )
            .unwrap();
        let error =
            revocation_lists(std::slice::from_ref(&path), &Arc::new(roots), &mut None).unwrap_err();
        assert_eq!(error.path, path);
        assert!(error.what.contains("version 2 with a CRL number"), "{}", error.what);
    }
}
