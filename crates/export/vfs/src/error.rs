//! Errors in POSIX terms. The server maps them to protocol statuses.

use std::io;

pub type Result<T> = std::result::Result<T, Error>;

/// Each variant maps to one NFSv4 status; `Io` keeps its source for the log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no such file or directory")]
    NotFound,
    #[error("permission denied")]
    Access,
    #[error("operation not permitted")]
    Permission,
    #[error("file exists")]
    Exists,
    #[error("not a directory")]
    NotDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("is a symbolic link")]
    IsSymlink,
    #[error("wrong type of file")]
    WrongType,
    #[error("invalid argument")]
    Invalid,
    #[error("file too large")]
    TooLarge,
    #[error("no space left on device")]
    NoSpace,
    #[error("disk quota exceeded")]
    Quota,
    #[error("read-only file system")]
    ReadOnly,
    #[error("too many links")]
    TooManyLinks,
    #[error("name too long")]
    NameTooLong,
    #[error("directory not empty")]
    NotEmpty,
    #[error("stale file identity")]
    Stale,
    #[error("malformed file identity")]
    BadId,
    #[error("crosses file systems")]
    CrossesFileSystems,
    #[error("no such region")]
    NoSuchRegion,
    #[error("bad directory cookie")]
    BadCookie,
    #[error("no such extended attribute")]
    NoXattr,
    #[error("extended attribute too large")]
    XattrTooLarge,
    #[error("resource busy")]
    Busy,
    #[error("operation not supported")]
    NotSupported,
    #[error("another file has the name")]
    NameChanged,
    #[error("would have to wait")]
    WouldBlock,
    #[error("out of resources: {0}")]
    Resources(io::Error),
    #[error("{0}")]
    Io(io::Error),
}
