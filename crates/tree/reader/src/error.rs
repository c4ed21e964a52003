use std::io;
use std::path::PathBuf;

use vouch_tree::verify::Refusal;
use vouch_tree_client::{Error as ClientError, ErrorClass};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Each message is one line for the user.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Name(#[from] vouch_tree::name::NameError),
    #[error("{}: is a directory", lossy(path))]
    IsADirectory { path: Vec<u8> },
    #[error("{}: not a regular file", lossy(path))]
    NotRegular { path: Vec<u8> },
    #[error("{}: a symbolic link that leads out of the tree, to {}", lossy(path), lossy(target))]
    Outside { path: Vec<u8>, target: Vec<u8> },
    #[error("{choice}: no replica has it, or it never existed; `vouch log` lists the revisions")]
    NoRevision { choice: String },
    #[error("directory of key statements {}: {source}; give one that this user may read", path.display())]
    Statements { path: PathBuf, source: io::Error },
    #[error("this process was forked after the tree was opened; open the tree again in the child")]
    Forked,
    #[error("interrupted")]
    Interrupted,
    #[error("starting threads: {0}")]
    Threads(io::Error),
}

/// Kinds of errors, for exceptions and error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The signed tree proves that the name does not exist.
    NotFound,
    /// No replica has the revision or the tag, or it never existed. Replicas can withhold it.
    NoRevision,
    /// A component of the path is a file.
    NotADirectory,
    /// A file was expected.
    IsADirectory,
    /// A wrong argument, policy or file of statements.
    Input,
    /// Signatures or content are forged, or differ from what replicas promised.
    Tampered,
    /// Replicas offer only an older revision than one seen before, and lack frames of that one.
    Rollback,
    /// The tree's key was revoked.
    Revoked,
    /// The newest revision is no longer valid.
    Expired,
    /// Witnesses that a policy demands have not seen the revision.
    Unwitnessed,
    /// No replica answers in time.
    Unreachable,
    /// The tree or all copies lack frames, or cannot be decoded.
    Damaged,
    /// A file or the configuration of this machine.
    Local,
    /// The caller asked to stop.
    Interrupted,
    /// Opened before fork(2).
    Forked,
}

impl Error {
    /// Each error has one kind.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Client(error) => kind_of(error),
            Self::Name(_) | Self::Statements { .. } => ErrorKind::Input,
            Self::NotRegular { .. } | Self::Outside { .. } => ErrorKind::Input,
            Self::IsADirectory { .. } => ErrorKind::IsADirectory,
            Self::NoRevision { .. } => ErrorKind::NoRevision,
            Self::Forked => ErrorKind::Forked,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Threads(_) => ErrorKind::Local,
        }
    }

    /// Positive, for a file system.
    pub const fn errno(&self) -> i32 {
        let errno = match self {
            Self::Client(error) => return error.errno(),
            Self::IsADirectory { .. } => rustix::io::Errno::ISDIR,
            Self::Interrupted => rustix::io::Errno::INTR,
            Self::Threads(_) => rustix::io::Errno::AGAIN,
            Self::NoRevision { .. } | Self::Statements { .. } => rustix::io::Errno::IO,
            _ => rustix::io::Errno::INVAL,
        };
        errno.raw_os_error()
    }
}

fn kind_of(error: &ClientError) -> ErrorKind {
    match error {
        ClientError::NotADirectory { .. } => ErrorKind::NotADirectory,
        ClientError::Revoked { .. }
        | ClientError::Refused { source: Refusal::Revoked { .. }, .. } => ErrorKind::Revoked,
        ClientError::Refused { source: Refusal::Rollback { .. }, .. }
        | ClientError::Missing { refused: Some(_), .. } => ErrorKind::Rollback,
        _ => match error.class() {
            ErrorClass::NotFound => ErrorKind::NotFound,
            ErrorClass::Input => ErrorKind::Input,
            ErrorClass::Refused => ErrorKind::Tampered,
            ErrorClass::Unwitnessed => ErrorKind::Unwitnessed,
            ErrorClass::Expired => ErrorKind::Expired,
            ErrorClass::Unreachable => ErrorKind::Unreachable,
            ErrorClass::Damaged => ErrorKind::Damaged,
            ErrorClass::Local | ErrorClass::Busy => ErrorKind::Local,
        },
    }
}

fn lossy(path: &[u8]) -> std::borrow::Cow<'_, str> {
    if path.is_empty() { "/".into() } else { String::from_utf8_lossy(path) }
}
