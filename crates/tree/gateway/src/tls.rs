use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use zeroize::Zeroizing;

use crate::limits::PEM_LEN_MAX;

#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Its own certificate first, then those of its issuers.
    pub certificates: PathBuf,
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TlsError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: no {what} in PEM format", path.display())]
    Empty { path: PathBuf, what: &'static str },
    #[error("{} and {}: {source}", files.certificates.display(), files.key.display())]
    Pair { files: TlsFiles, source: rustls::Error },
}

pub(crate) struct Tls {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub(crate) fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let config = RwLock::new(read(&files)?);
        Ok(Self { files, config })
    }

    /// After an error, the old certificate stays in force.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        *self.config.write() = read(&self.files)?;
        Ok(())
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.read().clone())
    }
}

pub(crate) fn has_chosen_http2<S>(stream: &TlsStream<S>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP2)
}

/// Name of HTTP/2 in TLS (RFC 9113 §3.1).
const HTTP2: &[u8] = b"h2";

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let pem = read_pem(&files.certificates)?;
    let empty = |path: &Path, what| TlsError::Empty { path: path.to_owned(), what };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|_| empty(&files.certificates, "certificate"))?;
    if chain.is_empty() {
        return Err(empty(&files.certificates, "certificate"));
    }
    vouch_trust::warn_if_exposed(&files.key);
    let key = PrivateKeyDer::from_pem_slice(&read_pem(&files.key)?)
        .map_err(|_| empty(&files.key, "private key"))?;
    let pair = |source| TlsError::Pair { files: files.clone(), source };
    let config = ServerConfig::builder_with_provider(vouch_tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(pair)?;
    let mut config = config.with_no_client_auth().with_single_cert(chain, key).map_err(pair)?;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn read_pem(path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsError> {
    let read = || {
        let mut bytes = Zeroizing::new(Vec::new());
        File::open(path)?.take(PEM_LEN_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|source| TlsError::Read { path: path.to_owned(), source })
}
