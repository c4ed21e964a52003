//! What can end a measurement, and whose fault it was.

use std::io;
use std::path::Path;

/// Why a measurement can't go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for makes no sense here.
    #[error("{0}")]
    Input(String),
    /// Nothing is there.
    #[error("{0}")]
    NotFound(String),
    /// The place to work in holds something already.
    #[error("{0} is not empty")]
    NotEmpty(String),
    /// Nobody answers, or no longer.
    #[error("{0}")]
    Unreachable(String),
    /// The peer, or a check of who it is, said no.
    #[error("{0}")]
    Refused(String),
    /// What was read is not what was written.
    #[error("{0}: what was read is not what was written")]
    Corrupt(String),
    /// The system under us.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program that we started.
    #[error("{0}")]
    Program(String),
    /// The server's answer to a call.
    #[error("{what}: {source}")]
    Nfs {
        /// What was being done.
        what: String,
        /// What came of it.
        source: vouch_nfs4_client::Error,
    },
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An error of the system about a file.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(path.display().to_string())
    }

    /// An error of the system while doing something.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// An error of a call.
    pub fn nfs(what: impl Into<String>) -> impl FnOnce(vouch_nfs4_client::Error) -> Self {
        let what = what.into();
        move |source| match source {
            vouch_nfs4_client::Error::Lost | vouch_nfs4_client::Error::Io(_) => Self::Unreachable(format!("{what}: {source}")),
            source if source.status() == Some(vouch_nfs4::Status::NOENT) => Self::NotFound(format!("{what}: no such file or directory")),
            source => Self::Nfs { what, source },
        }
    }
}
