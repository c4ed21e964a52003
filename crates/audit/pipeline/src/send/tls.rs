//! RFC 5425 §4. Trusts the roots of one file and no others; a refusal comes before any record is
//! sent.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore, StreamOwned,
};

use super::delivery_error::DeliveryError;
use super::unacknowledged;
use vouch_daemon::failure::{Failure, Outcome, chain};

#[derive(Debug, Default)]
pub struct TlsOptions {
    /// CAs that may sign the collector's certificate; no others are trusted.
    pub ca: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Name in the collector's certificate, if it differs from the URL.
    pub name: Option<ServerName<'static>>,
    /// Whether the end of TCP without close_notify proves that everything was read.
    pub accepts_plain_end: bool,
}

/// A name or an address in a certificate.
pub fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned()).map_err(|_| format!("{text:?} is not a host name"))
}

impl TlsOptions {
    pub(super) fn any(&self) -> bool {
        self.ca.is_some()
            || self.certificate.is_some()
            || self.name.is_some()
            || self.accepts_plain_end
    }

    /// Each connection reads the files, so renewed certificates need no restart.
    pub(super) fn config(&self) -> Outcome<ClientConfig> {
        let Some(ca) = &self.ca else {
            return Err(Failure::usage(
                "--tls-ca",
                "missing: without a CA no collector can be trusted",
            )
            .cure("give the file of the CA's certificate"));
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|error| {
                Failure::input(ca.display(), format!("contains no CA certificate: {error}"))
            })?;
        }
        let config = ClientConfig::builder_with_provider(vouch_tls::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::input(ca.display(), error))?
            .with_root_certificates(roots);
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates(certificate)?;
                vouch_trust::warn_if_exposed(key);
                let private = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| pem_failure(key, error, "private key"))?;
                let refused = |error| {
                    Failure::input(
                        key.display(),
                        format!("does not match {}: {error}", certificate.display()),
                    )
                };
                config.with_client_auth_cert(chain, private).map_err(refused)
            }
            _ => Ok(config.with_no_client_auth()),
        }
    }

    pub(super) fn nats(
        &self,
        mut options: async_nats::ConnectOptions,
    ) -> Outcome<async_nats::ConnectOptions> {
        if self.name.is_some() || self.accepts_plain_end {
            return Err(Failure::usage("--tls-name and --tls-plain-end", "are for syslog")
                .cure("write the name that is in the NATS server's certificate in --to"));
        }
        // The NATS client uses the process's provider.
        vouch_tls::install_provider();
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let (Some(certificate), Some(key)) = (&self.certificate, &self.key) {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options.require_tls(true))
    }

    pub(super) fn expected_name(&self, host: &str) -> Outcome<ServerName<'static>> {
        match &self.name {
            Some(name) => Ok(name.clone()),
            None => server_name(host).map_err(|why| Failure::usage("--to", why)),
        }
    }

    pub(super) fn open(
        &self,
        host: &str,
        stream: TcpStream,
        limit: Duration,
    ) -> Result<Tls, DeliveryError> {
        let failed = |failure: Failure| DeliveryError::new(failure);
        let config = self.config().map_err(failed)?;
        let session =
            ClientConnection::new(Arc::new(config), self.expected_name(host).map_err(failed)?)
                .map_err(DeliveryError::new)?;
        let mut stream = StreamOwned::new(session, stream);
        let begun = Instant::now();
        while stream.conn.is_handshaking() {
            let done = stream.conn.complete_io(&mut stream.sock);
            done.map_err(|error| said_before(&mut stream, &error))?;
            if begun.elapsed() > limit {
                return Err(DeliveryError::new("the TLS handshake takes too long"));
            }
        }
        Ok(Tls { stream, takes_plain_end: self.accepts_plain_end })
    }
}

pub(super) struct Tls {
    stream: StreamOwned<ClientConnection, TcpStream>,
    takes_plain_end: bool,
}

impl Tls {
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), DeliveryError> {
        let sent = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
        sent.map_err(|error| said_before(&mut self.stream, &error))
    }

    /// The receiver answers our close_notify with its own after reading everything before it (RFC
    /// 5425 §4.4).
    pub(super) fn end(mut self, limit: Duration) -> Result<(), DeliveryError> {
        self.stream.conn.send_close_notify();
        let ended = self.stream.flush().and_then(|()| self.stream.sock.shutdown(Shutdown::Write));
        ended.map_err(|error| said_before(&mut self.stream, &error))?;
        let begun = Instant::now();
        let mut ignored = [0; 512];
        loop {
            match self.stream.read(&mut ignored) {
                Ok(0) => break,
                Ok(_) => {}
                // TCP ended in order, TLS did not.
                Err(error)
                    if error.kind() == io::ErrorKind::UnexpectedEof && self.takes_plain_end =>
                {
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(DeliveryError::plain_end());
                }
                Err(error) => return Err(delivery_error(&error)),
            }
            if begun.elapsed() > limit {
                return Err(DeliveryError::new("the collector does not close the connection"));
            }
        }
        // Both sides ended TLS. A collector with unread data would reset the connection.
        while self.stream.sock.read(&mut ignored)? > 0 {
            if begun.elapsed() > limit {
                return Err(DeliveryError::new("the collector does not close the connection"));
            }
        }
        Ok(unacknowledged::wait(&self.stream.sock, limit)?)
    }
}

/// A collector rejects our certificate after the handshake (TLS 1.3). Read from the socket: the
/// stream would first retry its failed write.
fn said_before(
    stream: &mut StreamOwned<ClientConnection, TcpStream>,
    error: &io::Error,
) -> DeliveryError {
    while let Ok(1..) = stream.conn.read_tls(&mut stream.sock) {
        if let Err(said) = stream.conn.process_new_packets() {
            return delivery_error(&io::Error::new(io::ErrorKind::InvalidData, said));
        }
    }
    delivery_error(error)
}

fn certificates(path: &Path) -> Outcome<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err(Failure::input(path.display(), "contains no PEM certificate"))
        }
        other => other.map_err(|error| pem_failure(path, error, "certificate")),
    }
}

fn pem_failure(path: &Path, error: rustls::pki_types::pem::Error, what: &str) -> Failure {
    match error {
        rustls::pki_types::pem::Error::Io(error) => Failure::io(path.display(), error),
        error => Failure::input(path.display(), format!("contains no PEM {what}: {error}")),
    }
}

pub(super) fn delivery_error(error: &io::Error) -> DeliveryError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(inner) = inner else {
        let ended = error.kind() == io::ErrorKind::UnexpectedEof;
        return DeliveryError::new(if ended {
            "the collector closed the connection".to_owned()
        } else {
            chain(error)
        });
    };
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext,
        NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext, UnknownIssuer,
    };
    match inner {
        rustls::Error::InvalidCertificate(why) => {
            let cure = match why {
                // The latter for another CA with the same name.
                UnknownIssuer | BadSignature => {
                    "--tls-ca names another CA than the one that signed it; nothing was sent"
                }
                Expired | ExpiredContext { .. } => {
                    "the collector needs a new certificate, or this machine's clock is wrong; nothing was sent"
                }
                NotValidYet | NotValidYetContext { .. } => {
                    "one of the two clocks is wrong; nothing was sent"
                }
                NotValidForName | NotValidForNameContext { .. } => {
                    "write the collector's name in --to, or its certificate's in --tls-name; nothing was sent"
                }
                InvalidPurpose | InvalidPurposeContext { .. } => {
                    "the collector needs a certificate for servers; nothing was sent"
                }
                _ => "the collector's certificate must be replaced; nothing was sent",
            };
            DeliveryError::refusal(
                format!("the collector's certificate is not trusted: {why}"),
                cure,
            )
        }
        rustls::Error::InvalidMessage(_) => DeliveryError::refusal(
            "the other side does not speak TLS",
            "give the collector's TLS port; nothing was sent",
        ),
        rustls::Error::AlertReceived(alert) if is_of_our_certificate(*alert) => {
            let cure = "give a valid --tls-cert and --tls-key, signed by the collector's CA";
            DeliveryError::refusal(
                format!("the collector rejects our certificate: {alert:?}"),
                cure,
            )
        }
        rustls::Error::AlertReceived(
            AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure,
        ) => DeliveryError::refusal(
            inner,
            "the collector must support TLS 1.2 or 1.3 with AEAD ciphers",
        ),
        _ => DeliveryError::new(inner),
    }
}

fn is_of_our_certificate(alert: AlertDescription) -> bool {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
        CertificateUnknown, DecryptError, NoCertificate, UnknownCA, UnsupportedCertificate,
    };
    matches!(
        alert,
        AccessDenied
            | BadCertificate
            | CertificateExpired
            | CertificateRequired
            | CertificateRevoked
            | CertificateUnknown
            // A wrong signature by a CA with the right name.
            | DecryptError
            | NoCertificate
            | UnknownCA
            | UnsupportedCertificate
    )
}
