use rustix::io::Errno;
use vouch_vfs::Error;

pub(crate) fn error(errno: Errno) -> Error {
    match errno {
        Errno::NOENT => Error::NotFound,
        Errno::ACCESS => Error::Access,
        Errno::PERM => Error::Permission,
        Errno::EXIST => Error::Exists,
        Errno::NOTDIR => Error::NotDirectory,
        Errno::ISDIR => Error::IsDirectory,
        Errno::LOOP => Error::IsSymlink,
        Errno::NXIO => Error::WrongType,
        Errno::INVAL => Error::Invalid,
        Errno::FBIG => Error::TooLarge,
        Errno::NOSPC => Error::NoSpace,
        Errno::DQUOT => Error::Quota,
        Errno::ROFS => Error::ReadOnly,
        Errno::MLINK => Error::TooManyLinks,
        Errno::NAMETOOLONG => Error::NameTooLong,
        Errno::NOTEMPTY => Error::NotEmpty,
        Errno::STALE => Error::Stale,
        Errno::XDEV => Error::CrossesFileSystems,
        Errno::NODATA => Error::NoXattr,
        Errno::TOOBIG | Errno::RANGE => Error::XattrTooLarge,
        Errno::TXTBSY | Errno::BUSY => Error::Busy,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => Error::NotSupported,
        Errno::AGAIN => Error::WouldBlock,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => {
            Error::Resources(errno.into())
        }
        _ => Error::Io(errno.into()),
    }
}

pub(crate) trait OrError<T> {
    fn or_error(self) -> vouch_vfs::Result<T>;
}

impl<T> OrError<T> for std::result::Result<T, Errno> {
    fn or_error(self) -> vouch_vfs::Result<T> {
        self.map_err(error)
    }
}
