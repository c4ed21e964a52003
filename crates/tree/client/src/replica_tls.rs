//! TLS hides what is read. The data needs no protection: it is verified by its hashes.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_rustls::TlsConnector;

use crate::connector::Stream;
use crate::{Error, Result};

/// TLS of a client's connections to replicas and web servers.
#[derive(Debug, Clone, Default)]
pub struct ReplicaTls {
    /// `None`: those of the system.
    authorities: Option<Arc<[CertificateDer<'static>]>>,
    is_required: bool,
}

impl ReplicaTls {
    /// `authorities`: a file (PEM) of authorities of servers; `None`: those of the system.
    /// `is_required`: refuse clear text. Each replica is then reached over TLS, and each URL is
    /// `https://`.
    pub fn new(authorities: Option<&Path>, is_required: bool) -> Result<Self> {
        Ok(Self { authorities: authorities.map(read).transpose()?, is_required })
    }

    /// Clear text is refused.
    pub const fn is_required(&self) -> bool {
        self.is_required
    }

    pub(crate) fn authorities(&self) -> Option<&[CertificateDer<'static>]> {
        self.authorities.as_deref()
    }
}

const SCHEME: &str = "tls://";

pub(crate) fn host_of(location: &str) -> Option<&str> {
    location.strip_prefix(SCHEME)
}

pub(crate) fn location_of(host: &str) -> String {
    format!("{SCHEME}{host}")
}

fn read(path: &Path) -> Result<Arc<[CertificateDer<'static>]>> {
    let fault = |what: String| Error::Authorities { what: format!("{}: {what}", path.display()) };
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let found = found.map_err(|error| fault(error.to_string()))?;
    if found.is_empty() {
        Err(fault("contains no certificate (PEM)".into()))
    } else {
        Ok(found.into())
    }
}

pub(crate) struct Sessions {
    tls: ReplicaTls,
    /// Made at the first use: clear text needs no certificate authorities.
    config: OnceLock<Arc<ClientConfig>>,
}

impl Sessions {
    /// Fails if the given authorities, or those of the system if TLS is required, cannot be used.
    pub(crate) fn new(tls: ReplicaTls) -> Result<Self> {
        let sessions = Self { tls, config: OnceLock::new() };
        if sessions.tls.authorities.is_some() || sessions.tls.is_required {
            sessions.config()?;
        }
        Ok(sessions)
    }

    pub(crate) const fn is_required(&self) -> bool {
        self.tls.is_required
    }

    pub(crate) async fn open(
        &self,
        host: &str,
        stream: tokio::net::TcpStream,
    ) -> io::Result<Box<dyn Stream>> {
        let config = self.config().map_err(io::Error::other)?;
        // An IPv6 address may have a zone, which no certificate names.
        let address = host.split('%').next().and_then(|text| text.parse::<IpAddr>().ok());
        let name = match address {
            Some(address) => ServerName::from(address),
            None => ServerName::try_from(host.to_owned()).map_err(|_| {
                io::Error::other(format!("no certificate can have the name {host}"))
            })?,
        };
        let session = TlsConnector::from(config).connect(name, stream).await;
        session
            .map(|session| Box::new(session) as Box<dyn Stream>)
            .map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))
    }

    fn config(&self) -> Result<Arc<ClientConfig>> {
        if let Some(config) = self.config.get() {
            return Ok(config.clone());
        }
        let fault = |error: rustls::Error| Error::Authorities { what: error.to_string() };
        let builder = ClientConfig::builder_with_provider(vouch_tls::provider());
        let builder = builder.with_safe_default_protocol_versions().map_err(fault)?;
        let builder = match self.tls.authorities() {
            None => builder.with_platform_verifier().map_err(fault)?,
            Some(certificates) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates {
                    roots.add(certificate.clone()).map_err(fault)?;
                }
                builder.with_root_certificates(roots)
            }
        };
        Ok(self.config.get_or_init(|| Arc::new(builder.with_no_client_auth())).clone())
    }
}
