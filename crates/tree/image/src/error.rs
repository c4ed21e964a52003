use std::io;

use oci_client::errors::OciDistributionError;
use vouch_tree_publish::AssemblyError;

/// A layer cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum LayerError {
    #[error("malformed tar archive: {0}")]
    Malformed(&'static str),
    #[error("the tar archive has an unsupported {0}")]
    Unsupported(&'static str),
    #[error("too large: {0} of more than {1}")]
    TooLarge(&'static str, u64),
    #[error("{path}: {why}")]
    Entry { path: String, why: &'static str },
    #[error(transparent)]
    Read(#[from] io::Error),
}

/// An image cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error("{what}: {source}")]
    Io {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error("{what}: {why}")]
    Invalid { what: String, why: String },
    #[error("{what}: not found; {known}")]
    NotFound { what: String, known: String },
    #[error("{0}: its bytes do not match its digest; copy or pull the image again")]
    Digest(String),
    #[error("layer {number}: {source}")]
    Layer {
        number: usize,
        #[source]
        source: LayerError,
    },
    #[error("layer {number}: {path}: {source}")]
    File {
        number: usize,
        path: String,
        #[source]
        source: AssemblyError,
    },
    #[error("the image has more than {0} bytes of files; --image-max sets the limit")]
    TooLarge(u64),
    #[error("{registry}: {source}")]
    Registry {
        registry: String,
        #[source]
        source: Box<OciDistributionError>,
    },
    #[error(transparent)]
    Publish(#[from] vouch_tree_publish::Error),
    #[error(transparent)]
    Tree(#[from] vouch_tree_client::Error),
}

impl Error {
    /// A registry has no such image.
    pub fn is_missing(&self) -> bool {
        use oci_client::errors::OciErrorCode::{ManifestUnknown, NameUnknown, NotFound};
        match self {
            Self::Registry { source, .. } => match &**source {
                OciDistributionError::RegistryError { envelope, .. } => {
                    let missing = [ManifestUnknown, NameUnknown, NotFound];
                    envelope.errors.iter().any(|error| missing.contains(&error.code))
                }
                OciDistributionError::ImageManifestNotFoundError(_) => true,
                OciDistributionError::ServerError { code, .. } => *code == 404,
                _ => false,
            },
            _ => false,
        }
    }

    /// A registry wants other credentials.
    pub fn is_denied(&self) -> bool {
        let Self::Registry { source, .. } = self else { return false };
        matches!(
            &**source,
            OciDistributionError::AuthenticationFailure(_)
                | OciDistributionError::UnauthorizedError { .. }
        )
    }

    pub(crate) fn io(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what: what.to_string(), source }
    }

    pub(crate) fn invalid(what: impl std::fmt::Display, why: impl Into<String>) -> Self {
        Self::Invalid { what: what.to_string(), why: why.into() }
    }
}
