//! What a mount can fail with: one line for whoever mounts, one errno for whoever reads.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fuser::Errno;

/// Why a mount did not come about, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point can't be one.
    #[error("{}: {why}", path.display())]
    Point {
        /// The mount point.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no mount point.
    #[error("{}: no such directory; make it first", path.display())]
    NoPoint {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The kernel has no FUSE, or hides it from this user.
    #[error("/dev/fuse can't be opened: {source}; load the module (modprobe fuse), or let this container or user have the device")]
    NoFuse {
        /// What the kernel said.
        source: io::Error,
    },
    /// The user may not mount here, or not like this.
    #[error("{}: not allowed to mount: {why}", path.display())]
    Denied {
        /// The mount point.
        path: PathBuf,
        /// What the kernel or fusermount3 said.
        why: String,
    },
    /// A file system of ours that is alive is mounted there.
    #[error("{}: a vouch mount is there already; unmount it first (fusermount3 -u), or choose another directory", path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// The machine failed.
    #[error("{}: {doing}: {source}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl MountError {
    /// The exit code of a command that ends with it.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Point { .. } | Self::Denied { .. } => 3,
            Self::NoPoint { .. } => 4,
            Self::NoFuse { .. } | Self::Io { .. } => 7,
            Self::Busy { .. } => 8,
        }
    }
}

/// Why one request of the kernel gets no data.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpError {
    /// The client could not get or not believe what was needed.
    #[error(transparent)]
    Client(#[from] vouch_tree_client::Error),
    /// A signed root proves that the file is no more.
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
    #[error("no data from there on")]
    NoOffset,
    /// Published in a way that this mount can't show.
    #[error("{0}")]
    Unfit(&'static str),
    /// The key's owner has revoked it.
    #[error("{0}")]
    Revoked(String),
    #[error("no answer within {0:?}")]
    TooLate(Duration),
}

impl OpError {
    /// What the caller of the system call gets.
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

    /// Whether the log should say why: a proven answer needs no explanation.
    pub(crate) const fn is_worth_a_line(&self) -> bool {
        matches!(self, Self::Client(_) | Self::Gone | Self::Unfit(_) | Self::Revoked(_) | Self::TooLate(_))
    }
}

/// "Key has been revoked", errno(3).
const EKEYREVOKED: i32 = 128;
