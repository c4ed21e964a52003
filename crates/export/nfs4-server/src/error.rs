//! Errors of operations, and their mapping to `nfsstat4`.

use vouch_nfs4::Status;
use vouch_vfs::Error;

use crate::Unanswered;

#[derive(Debug)]
pub(crate) enum OpError {
    Status(Status),
    Encoded(Status),
    /// The operation must wait for its file system, and has done nothing yet.
    WouldBlock,
    /// The operation must wait for the name service, and has done nothing yet.
    NamesWouldBlock,
    /// A part is done, and other calls of the thread go first.
    TurnOver,
    /// The environment failed. The source goes into the list of recent errors.
    Fault(Status, std::io::Error),
}

pub(crate) type OpResult = Result<(), OpError>;

impl From<Status> for OpError {
    fn from(status: Status) -> Self {
        OpError::Status(status)
    }
}

impl From<Unanswered> for OpError {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::WouldWait => OpError::NamesWouldBlock,
            // After ACCESS a client would drop its cached writes.
            Unanswered::Silent => OpError::Status(Status::DELAY),
        }
    }
}

impl From<Error> for OpError {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::WouldBlock => return OpError::WouldBlock,
            Error::Io(source) => return OpError::Fault(Status::IO, source),
            // RFC 8881 §15.1.1.3.
            Error::Resources(source) => return OpError::Fault(Status::DELAY, source),
            Error::NameChanged => Status::DELAY,
            Error::NotFound => Status::NOENT,
            Error::Access => Status::ACCESS,
            Error::Permission => Status::PERM,
            Error::Exists => Status::EXIST,
            Error::NotDirectory => Status::NOTDIR,
            Error::IsDirectory => Status::ISDIR,
            Error::IsSymlink => Status::SYMLINK,
            Error::WrongType => Status::WRONG_TYPE,
            Error::Invalid => Status::INVAL,
            Error::TooLarge => Status::FBIG,
            Error::NoSpace => Status::NOSPC,
            Error::Quota => Status::DQUOT,
            Error::ReadOnly => Status::ROFS,
            Error::TooManyLinks => Status::MLINK,
            Error::NameTooLong => Status::NAMETOOLONG,
            Error::NotEmpty => Status::NOTEMPTY,
            Error::Stale => Status::STALE,
            Error::BadId => Status::BADHANDLE,
            Error::CrossesFileSystems => Status::XDEV,
            Error::NoSuchRegion => Status::NXIO,
            Error::BadCookie => Status::BAD_COOKIE,
            Error::NoXattr => Status::NOXATTR,
            Error::XattrTooLarge => Status::XATTR2BIG,
            Error::Busy => Status::FILE_OPEN,
            Error::NotSupported => Status::NOTSUPP,
        };
        OpError::Status(status)
    }
}
