//! Whom a collector must be, and who we are: TLS (RFC 5425, section 4) with the roots of one file,
//! and nobody else's. What is refused is refused before a record is sent.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::trouble::Trouble;
use super::unacknowledged;
use crate::exit::{Failure, Outcome, chain};

/// TLS to the collector.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsArgs {
    /// Certificates (PEM) of who vouches for the collector; nobody else is believed.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Our certificate (PEM, with those between it and its root), if the collector asks for one.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name or address in the collector's certificate, if it isn't the URL's.
    #[arg(long, value_name = "NAME", value_parser = server_name)]
    tls_name: Option<ServerName<'static>>,
    /// Take the plain end of a connection for the collector's word that it has read all, where it
    /// does not end TLS as it must (rsyslog). Who can cut the wire can say it, too.
    #[arg(long)]
    tls_plain_end: bool,
}

fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned()).map_err(|_| format!("{text:?} is no name of a host"))
}

impl TlsArgs {
    /// Whether any was given.
    pub(super) fn any(&self) -> bool {
        self.tls_ca.is_some() || self.tls_cert.is_some() || self.tls_name.is_some() || self.tls_plain_end
    }

    /// Reads the files, which is done for each connection: renewed certificates need no restart.
    pub(super) fn config(&self) -> Outcome<ClientConfig> {
        let Some(ca) = &self.tls_ca else {
            return Err(
                Failure::usage("--tls-ca", "missing: without it nobody could be believed").cure("name the file of the CA's certificate")
            );
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|error| Failure::input(ca.display(), format!("holds no certificate of a CA: {error}")))?;
        }
        // Named, so that no other crate of this program can choose another for the whole process.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Failure::input(ca.display(), error))?
            .with_root_certificates(roots);
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates(certificate)?;
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| pem_failure(key, error, "private key"))?;
                let refused = |error| Failure::input(key.display(), format!("does not go with {}: {error}", certificate.display()));
                config.with_client_auth_cert(chain, private).map_err(refused)
            }
            _ => Ok(config.with_no_client_auth()),
        }
    }

    /// The same for a client of NATS, which reads the files by itself.
    pub(super) fn nats(&self, mut options: async_nats::ConnectOptions) -> Outcome<async_nats::ConnectOptions> {
        if self.tls_name.is_some() || self.tls_plain_end {
            return Err(Failure::usage("--tls-name and --tls-plain-end", "are for syslog")
                .cure("write the name that is in the NATS server's certificate in --to"));
        }
        // It takes the process's, and with one that was chosen already there is nothing to choose.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if let Some(ca) = &self.tls_ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(options.require_tls(true))
    }

    /// The name that the collector's certificate must bear.
    pub(super) fn name(&self, host: &str) -> Outcome<ServerName<'static>> {
        match &self.tls_name {
            Some(name) => Ok(name.clone()),
            None => server_name(host).map_err(|why| Failure::usage("--to", why)),
        }
    }

    /// A session over a new connection: nothing was sent yet, and the other side is who it must be.
    pub(super) fn open(&self, host: &str, stream: TcpStream, limit: Duration) -> Result<Tls, Trouble> {
        let as_trouble = |failure: Failure| Trouble::new(failure);
        let config = self.config().map_err(as_trouble)?;
        let session = ClientConnection::new(Arc::new(config), self.name(host).map_err(as_trouble)?).map_err(Trouble::new)?;
        let mut stream = StreamOwned::new(session, stream);
        let begun = Instant::now();
        while stream.conn.is_handshaking() {
            let done = stream.conn.complete_io(&mut stream.sock);
            done.map_err(|error| said_before(&mut stream, &error))?;
            if begun.elapsed() > limit {
                return Err(Trouble::new("the TLS handshake takes too long"));
            }
        }
        Ok(Tls { stream, takes_plain_end: self.tls_plain_end })
    }
}

/// A session with a collector that has shown who it is.
pub(super) struct Tls {
    stream: StreamOwned<ClientConnection, TcpStream>,
    takes_plain_end: bool,
}

impl Tls {
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let sent = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
        sent.map_err(|error| said_before(&mut self.stream, &error))
    }

    /// Ends it. RFC 5425, section 4.4: the receiver answers our close_notify with its own, which it
    /// can do only when it has read what came before.
    pub(super) fn end(mut self, limit: Duration) -> Result<(), Trouble> {
        self.stream.conn.send_close_notify();
        let ended = self.stream.flush().and_then(|()| self.stream.sock.shutdown(Shutdown::Write));
        ended.map_err(|error| said_before(&mut self.stream, &error))?;
        let begun = Instant::now();
        let mut ignored = [0; 512];
        loop {
            match self.stream.read(&mut ignored) {
                Ok(0) => break,
                Ok(_) => {}
                // The connection ended in good order, TLS did not.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && self.takes_plain_end => break,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(Trouble::plain_end());
                }
                Err(error) => return Err(trouble(&error)),
            }
            if begun.elapsed() > limit {
                return Err(Trouble::new("the collector does not end the connection"));
            }
        }
        // TLS has ended on both sides; one that had not read all ends the connection by a reset.
        while self.stream.sock.read(&mut ignored)? > 0 {
            if begun.elapsed() > limit {
                return Err(Trouble::new("the collector does not end the connection"));
            }
        }
        Ok(unacknowledged::wait(&self.stream.sock, limit)?)
    }
}

/// What the other side said before the connection broke, if it did: with TLS 1.3 a collector says
/// only after the handshake that it does not take our certificate, and may be gone when we send the
/// first record. Not read by the stream, which would write first what is left, and fail by that
/// again.
fn said_before(stream: &mut StreamOwned<ClientConnection, TcpStream>, error: &io::Error) -> Trouble {
    while let Ok(1..) = stream.conn.read_tls(&mut stream.sock) {
        if let Err(said) = stream.conn.process_new_packets() {
            return trouble(&io::Error::new(io::ErrorKind::InvalidData, said));
        }
    }
    trouble(error)
}

fn certificates(path: &Path) -> Outcome<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err(Failure::input(path.display(), "holds no certificate in PEM")),
        other => other.map_err(|error| pem_failure(path, error, "certificate")),
    }
}

fn pem_failure(path: &Path, error: rustls::pki_types::pem::Error, what: &str) -> Failure {
    match error {
        rustls::pki_types::pem::Error::Io(error) => Failure::new(path.display(), error),
        error => Failure::input(path.display(), format!("holds no {what} in PEM: {error}")),
    }
}

/// What went wrong, and the cure where people can do something.
pub(super) fn trouble(error: &io::Error) -> Trouble {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(inner) = inner else {
        let ended = error.kind() == io::ErrorKind::UnexpectedEof;
        return Trouble::new(if ended { "the collector ended the connection".to_owned() } else { chain(error) });
    };
    use CertificateError::{
        BadSignature, Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    match inner {
        rustls::Error::InvalidCertificate(why) => {
            let cure = match why {
                // The latter of a CA of the same name.
                UnknownIssuer | BadSignature => "--tls-ca names another CA than the one that signed it; nothing was sent",
                Expired | ExpiredContext { .. } => {
                    "the collector needs a new certificate, or this machine's clock is wrong; nothing was sent"
                }
                NotValidYet | NotValidYetContext { .. } => "one of the two clocks is wrong; nothing was sent",
                NotValidForName | NotValidForNameContext { .. } => {
                    "write the collector's name in --to, or its certificate's in --tls-name; nothing was sent"
                }
                InvalidPurpose | InvalidPurposeContext { .. } => "the collector needs a certificate for servers; nothing was sent",
                _ => "the collector needs another certificate; nothing was sent",
            };
            Trouble::refusal(format!("the collector's certificate is not believed: {why}"), cure)
        }
        rustls::Error::InvalidMessage(_) => {
            Trouble::refusal("the other side does not speak TLS", "give the port on which the collector does; nothing was sent")
        }
        rustls::Error::AlertReceived(alert) if is_of_our_certificate(*alert) => {
            let cure = "give --tls-cert and --tls-key that the collector's CA has signed and that are in date";
            Trouble::refusal(format!("the collector does not take our certificate: {alert:?}"), cure)
        }
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure) => {
            Trouble::refusal(inner, "the collector must take TLS 1.2 or 1.3 with AEAD ciphers")
        }
        _ => Trouble::new(inner),
    }
}

fn is_of_our_certificate(alert: AlertDescription) -> bool {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked, CertificateUnknown, DecryptError,
        NoCertificate, UnknownCA, UnsupportedCertificate,
    };
    matches!(
        alert,
        AccessDenied
            | BadCertificate
            | CertificateExpired
            | CertificateRequired
            | CertificateRevoked
            | CertificateUnknown
            // Its signature, where the CA has the name of the right one.
            | DecryptError
            | NoCertificate
            | UnknownCA
            | UnsupportedCertificate
    )
}
