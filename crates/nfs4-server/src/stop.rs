//! Why an operation stopped, and the one place where errors of file systems become statuses.

use vouch_nfs4::Status;
use vouch_vfs::Error;

use crate::Unanswered;

/// Why an operation did not succeed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It failed; the result is nothing but the status.
    Status(Status),
    /// It failed, and the result with the body that belongs to the status is written already.
    Written(Status),
    /// It would have to wait, and has done nothing yet.
    Blocked,
    /// The environment failed; the source is for the record of errors.
    Fault(Status, std::io::Error),
}

/// How an operation ended: with its result written, or not.
pub(crate) type Outcome = Result<(), Stop>;

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Stop::Status(status)
    }
}

impl From<Unanswered> for Stop {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::WouldWait => Stop::Blocked,
            // ACCESS would be believed: a client drops what was written to an open file, and was to reach the disk under a right that
            // nobody has taken away.
            Unanswered::Silent => Stop::Status(Status::DELAY),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::WouldBlock => return Stop::Blocked,
            Error::Io(source) => return Stop::Fault(Status::IO, source),
            // RFC 8881, section 15.1.1.3: what may succeed later is DELAY; SERVERFAULT would make clients give up.
            Error::Resources(source) => return Stop::Fault(Status::DELAY, source),
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
        Stop::Status(status)
    }
}
