use std::path::PathBuf;

use vouch_rpc_tls::credentials::CredentialError;

#[derive(Debug, thiserror::Error)]
pub enum TlsServiceError {
    #[error("TLS: {0}")]
    Credentials(#[from] CredentialError),
    #[error("{path}: {error}", path = path.display())]
    Map { path: PathBuf, error: String },
}
