//! Errors of calls, as errno.

use rustix::io::Errno;
use vouch_nfs4::Status;
use vouch_nfs4_client::Error;

/// The error of a system call.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

pub(crate) fn errno(error: &Error) -> Errno {
    match error {
        Error::Refused { status, .. } => errno_of(*status),
        Error::Denied(_) => Errno::ACCESS,
        Error::Io(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
        Error::TooLarge => Errno::TOOBIG,
        _ => Errno::IO,
    }
}

/// Most numbers up to `NFS4ERR_ROFS` are those of Linux.
pub(crate) fn errno_of(status: Status) -> Errno {
    match status {
        Status::PERM | Status::WRONGSEC => Errno::PERM,
        Status::NOENT => Errno::NOENT,
        Status::NXIO => Errno::NXIO,
        Status::ACCESS => Errno::ACCESS,
        Status::EXIST => Errno::EXIST,
        Status::XDEV => Errno::XDEV,
        Status::NOTDIR => Errno::NOTDIR,
        Status::ISDIR => Errno::ISDIR,
        Status::FBIG => Errno::FBIG,
        Status::NOSPC => Errno::NOSPC,
        Status::ROFS => Errno::ROFS,
        Status::MLINK => Errno::MLINK,
        Status::NAMETOOLONG => Errno::NAMETOOLONG,
        Status::NOTEMPTY => Errno::NOTEMPTY,
        Status::DQUOT => Errno::DQUOT,
        Status::STALE | Status::BADHANDLE | Status::FHEXPIRED => Errno::STALE,
        Status::NOTSUPP | Status::ATTRNOTSUPP => Errno::OPNOTSUPP,
        Status::DELAY | Status::GRACE => Errno::TIMEDOUT,
        Status::DENIED | Status::LOCKED => Errno::AGAIN,
        Status::DEADLOCK => Errno::DEADLK,
        Status::SHARE_DENIED | Status::FILE_OPEN => Errno::BUSY,
        Status::SYMLINK => Errno::LOOP,
        // flock(1) then opens the file for writing.
        Status::OPENMODE => Errno::BADF,
        Status::NOXATTR => Errno::NODATA,
        Status::XATTR2BIG => Errno::TOOBIG,
        Status::WRONG_TYPE => Errno::NOTDIR,
        Status::INVAL
        | Status::BADTYPE
        | Status::BADOWNER
        | Status::BADNAME
        | Status::BADCHAR
        | Status::BAD_COOKIE
        | Status::BAD_RANGE
        | Status::LOCK_RANGE
        | Status::LOCK_NOTSUPP
        | Status::TOOSMALL => Errno::INVAL,
        _ => Errno::IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_posix_keeps_its_number() {
        for number in 1..31 {
            let status = Status(number);
            if status.name().is_some() && status != Status::IO {
                assert_eq!(errno_of(status).raw_os_error(), number as i32, "{status}");
            }
        }
        assert_eq!(errno_of(Status::SERVERFAULT), Errno::IO);
    }
}
