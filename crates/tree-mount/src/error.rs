//! Errors of mounting, and errors of requests with their errno.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fuser::Errno;

/// Why mounting or unmounting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point is unusable.
    #[error("{}: {why}", path.display())]
    Point {
        /// The mount point.
        path: PathBuf,
        /// Why it is unusable.
        why: &'static str,
    },
    /// The mount point does not exist.
    #[error("{}: no such directory; create it first", path.display())]
    NoPoint {
        /// The mount point.
        path: PathBuf,
    },
    /// FUSE is not available to this user.
    #[error("/dev/fuse can't be opened: {source}; load the module (modprobe fuse), or give this container or user access to the device")]
    NoFuse {
        /// The error of open(2).
        source: io::Error,
    },
    /// The user may not mount here or with these options.
    #[error("{}: not allowed to mount: {why}", path.display())]
    Denied {
        /// The mount point.
        path: PathBuf,
        /// Error of the kernel or of fusermount3.
        why: String,
    },
    /// A running vouch mount is there already.
    #[error("{}: already a vouch mount; unmount it first (fusermount3 -u), or choose another directory", path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// An I/O error of the system.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum OpError {
    #[error(transparent)]
    Client(#[from] vouch_tree_client::Error),
    /// The signed tree proves that the file no longer exists.
    #[error("removed in a newer revision")]
    Gone,
    #[error("not a directory")]
    NotDirectory,
    #[error("no such attribute")]
    NoData,
    #[error("buffer too small")]
    TooSmall,
    #[error("invalid argument")]
    Invalid,
    #[error("no data after this offset")]
    NoOffset,
    /// The tree or the mount cannot represent the file.
    #[error("{0}")]
    Unfit(&'static str),
    /// The key of the tree is revoked.
    #[error("{0}")]
    Revoked(String),
    #[error("no answer within {0:?}")]
    TooLate(Duration),
}

impl OpError {
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::Client(error) => Errno::from_i32(error.errno()),
            Self::Gone => Errno::ESTALE,
            Self::NotDirectory => Errno::ENOTDIR,
            Self::NoData => Errno::ENODATA,
            Self::TooSmall => Errno::ERANGE,
            Self::Invalid => Errno::EINVAL,
            Self::NoOffset => Errno::ENXIO,
            Self::Revoked(_) => Errno::from_i32(EKEYREVOKED),
            Self::Unfit(_) | Self::TooLate(_) => Errno::EIO,
        }
    }

    /// Whether to log the error. Proven answers are not logged.
    pub(crate) const fn is_logged(&self) -> bool {
        matches!(self, Self::Client(_) | Self::Gone | Self::Unfit(_) | Self::Revoked(_) | Self::TooLate(_))
    }
}

/// "Key has been revoked", errno(3).
const EKEYREVOKED: i32 = 128;
