//! Why a file system refused, in the words of POSIX; the server alone maps them to a protocol's
//! status.

use std::io;

/// Result of an operation of a file system.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. Each variant is one status of NFSv4 at the other end; `Io` keeps its
/// source for the log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EACCES: the caller lacks a right that the file's mode or ACL could give.
    #[error("permission denied")]
    Access,
    /// EPERM: only the owner, or a privileged caller, may do this.
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
    /// The file is a symbolic link where that is not wanted (ELOOP of O_NOFOLLOW).
    #[error("is a symbolic link")]
    IsSymlink,
    /// The file's type does not allow the operation: neither file nor directory nor symbolic link.
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
    /// ESTALE: the file that the identity names is gone.
    #[error("stale file identity")]
    Stale,
    /// The identity is not one that this file system could have given out.
    #[error("malformed file identity")]
    BadId,
    /// EXDEV.
    #[error("crosses file systems")]
    CrossesFileSystems,
    /// ENXIO of SEEK_DATA and SEEK_HOLE: no such thing at or after the offset.
    #[error("no such region")]
    NoSuchRegion,
    /// A directory cookie that was never given out.
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
    /// EOPNOTSUPP: this file system can't do it.
    #[error("operation not supported")]
    NotSupported,
    /// The answer would have to wait, and [`Patience::None`](crate::Patience::None) was asked.
    #[error("would have to wait")]
    WouldBlock,
    /// EMFILE, ENOMEM and their kin: it may work later.
    #[error("out of resources: {0}")]
    Resources(io::Error),
    /// Anything else: the environment's fault.
    #[error("{0}")]
    Io(io::Error),
}
