//! Errors of mounting, and of requests with their errno.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fuser::Errno;

#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("{}: {why}", path.display())]
    Point { path: PathBuf, why: &'static str },
    #[error("{}: no such directory; create it first", path.display())]
    NoPoint { path: PathBuf },
    #[error("{}: no such directory, so no tree is mounted there", path.display())]
    NoMount { path: PathBuf },
    #[error(
        "/dev/fuse can't be opened: {source}; load the module (modprobe fuse), or give this container or user access to the device"
    )]
    NoFuse { source: io::Error },
    #[error(
        "fusermount3 is not installed, so users other than root can neither mount nor unmount; install the package fuse3"
    )]
    NoFusermount,
    #[error("{}: not allowed to mount: {why}", path.display())]
    Denied {
        path: PathBuf,
        /// Message of the kernel or of fusermount3.
        why: String,
    },
    #[error("{}: already a vouch mount; unmount it first (`vouch umount DIR`), or choose another directory", path.display())]
    Busy { path: PathBuf },
    #[error(
        "{}: the kernel ended the FUSE connection without an unmount (a write to /sys/fs/fuse/connections/N/abort, or a request that took longer than fs.fuse.max_request_timeout); mount again",
        path.display()
    )]
    Aborted { path: PathBuf },
    /// This process cannot continue another one's mount.
    #[error("cannot take the mount over: {why}")]
    TakeOver { why: String },
    #[error("{}: {doing}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum OpError {
    #[error(transparent)]
    Client(#[from] vouch_tree_client::Error),
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

    /// An error that follows from verified content, such as a missing name, is a normal answer.
    pub(crate) const fn is_logged(&self) -> bool {
        matches!(
            self,
            Self::Client(_) | Self::Gone | Self::Unfit(_) | Self::Revoked(_) | Self::TooLate(_)
        )
    }
}

const EKEYREVOKED: i32 = 128;
