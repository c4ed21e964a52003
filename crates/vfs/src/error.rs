//! Errors of file systems, in POSIX terms. The server maps them to protocol statuses.

use std::io;

/// Result of a file system operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Reason for a failed operation. Each variant maps to one NFSv4 status; `Io` keeps its source for
/// the log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EACCES: mode or ACL deny the access.
    #[error("permission denied")]
    Access,
    /// EPERM: reserved to the owner or a privileged caller.
    #[error("operation not permitted")]
    Permission,
    /// EEXIST.
    #[error("file exists")]
    Exists,
    /// ENOTDIR.
    #[error("not a directory")]
    NotDirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsDirectory,
    /// Unexpected symbolic link (ELOOP of O_NOFOLLOW).
    #[error("is a symbolic link")]
    IsSymlink,
    /// Unsuitable type: neither file, directory nor symbolic link.
    #[error("wrong type of file")]
    WrongType,
    /// EINVAL.
    #[error("invalid argument")]
    Invalid,
    /// EFBIG.
    #[error("file too large")]
    TooLarge,
    /// ENOSPC.
    #[error("no space left on device")]
    NoSpace,
    /// EDQUOT.
    #[error("disk quota exceeded")]
    Quota,
    /// EROFS.
    #[error("read-only file system")]
    ReadOnly,
    /// EMLINK.
    #[error("too many links")]
    TooManyLinks,
    /// ENAMETOOLONG.
    #[error("name too long")]
    NameTooLong,
    /// ENOTEMPTY.
    #[error("directory not empty")]
    NotEmpty,
    /// ESTALE: the file is gone.
    #[error("stale file identity")]
    Stale,
    /// Malformed identity.
    #[error("malformed file identity")]
    BadId,
    /// EXDEV.
    #[error("crosses file systems")]
    CrossesFileSystems,
    /// ENXIO of SEEK_DATA and SEEK_HOLE: no such region after the offset.
    #[error("no such region")]
    NoSuchRegion,
    /// Invalid directory cookie.
    #[error("bad directory cookie")]
    BadCookie,
    /// ENODATA: no such extended attribute.
    #[error("no such extended attribute")]
    NoXattr,
    /// E2BIG, ERANGE: an extended attribute that is too large.
    #[error("extended attribute too large")]
    XattrTooLarge,
    /// ETXTBSY, EBUSY: in use in a way that excludes this.
    #[error("resource busy")]
    Busy,
    /// EOPNOTSUPP.
    #[error("operation not supported")]
    NotSupported,
    /// The call would block, and [`Patience::None`](crate::Patience::None) was given.
    #[error("would have to wait")]
    WouldBlock,
    /// EMFILE, ENOMEM and similar: a retry may succeed.
    #[error("out of resources: {0}")]
    Resources(io::Error),
    /// Any other system error.
    #[error("{0}")]
    Io(io::Error),
}
