//! For connections that begin with a TLS handshake. The same port serves clear text.

use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mio::net::TcpStream;
use parking_lot::{Mutex, RwLock};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

use super::output::Output;
use super::send::{self, SendBuffer, SendError, Step};

/// PEM: the chain, the server's own certificate first, and the private key.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}")]
pub struct TlsError {
    path: PathBuf,
    what: String,
}

/// First byte of a TLS handshake record (RFC 8446 §5.1).
pub(super) const HANDSHAKE: u8 = 0x16;

/// The certificate in force. Replaced files are taken for new connections.
#[derive(Debug)]
pub(super) struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
    stamp: Mutex<[FileStamp; 2]>,
}

/// Device, inode, length and modification time; `None` if the file is missing.
type FileStamp = Option<(u64, u64, u64, i64, i64)>;

impl Tls {
    pub(super) fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let stamp = Mutex::new(files.stamp());
        Ok(Self { config: RwLock::new(files.load()?), files, stamp })
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.config.read().clone()
    }

    pub(super) fn refresh(&self) {
        let stamp = self.files.stamp();
        if std::mem::replace(&mut *self.stamp.lock(), stamp) == stamp {
            return;
        }
        match self.files.load() {
            Ok(config) => {
                *self.config.write() = config;
                tracing::info!(path = %self.files.certificate.display(), "the certificate was read again");
            }
            Err(error) => tracing::error!("the old certificate stays in force: {error}"),
        }
    }

    /// Directories of the files, and of those that they are links to.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let files = [&self.files.certificate, &self.files.key];
        let linked = files.iter().filter_map(|file| file.canonicalize().ok());
        let parent = |file: &Path| {
            file.parent()
                .map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir }.to_owned())
        };
        files
            .iter()
            .filter_map(|file| parent(file))
            .chain(linked.filter_map(|file| parent(&file)))
            .collect()
    }
}

impl TlsFiles {
    fn stamp(&self) -> [FileStamp; 2] {
        [&self.certificate, &self.key].map(|path| {
            let found = path.metadata().ok()?;
            Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
        })
    }

    fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let failed = |path: &Path, what: String| TlsError { path: path.to_owned(), what };
        let chain = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| failed(&self.certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(failed(&self.certificate, "contains no certificate (PEM)".into()));
        }
        vouch_trust::warn_if_exposed(&self.key);
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| failed(&self.key, error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(vouch_tls::provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| {
                failed(
                    &self.key,
                    format!("can't be used with {}: {error}", self.certificate.display()),
                )
            })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

pub(super) struct Session {
    tls: ServerConnection,
    /// Output bytes whose records have not all left.
    in_flight: u64,
}

impl Session {
    pub(super) fn new(config: &Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self { tls: ServerConnection::new(config.clone())?, in_flight: 0 })
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    pub(super) fn receive(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes)?;
            self.tls.process_new_packets().map_err(io::Error::other)?;
        }
        Ok(())
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> usize {
        self.tls.reader().read(out).unwrap_or(0)
    }

    /// False if the socket is full.
    pub(super) fn flush(&mut self, mut socket: &TcpStream) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(super) fn step<F: std::os::fd::AsFd + Clone + PartialEq>(
        &mut self,
        socket: &TcpStream,
        output: &Output<F>,
        buffer: &mut SendBuffer,
    ) -> Result<Step, SendError<F>> {
        if self.in_flight == 0 {
            let plain = send::copied(output, buffer)?;
            self.in_flight = self.tls.writer().write(plain).map_err(|_| SendError::Peer)? as u64;
        }
        match self.flush(socket) {
            Ok(true) => Ok(Step::Sent(std::mem::take(&mut self.in_flight))),
            Ok(false) => Ok(Step::Full(0)),
            Err(_) => Err(SendError::Peer),
        }
    }

    pub(super) fn close(&mut self, socket: &TcpStream) {
        self.tls.send_close_notify();
        let _ = self.flush(socket);
    }
}
