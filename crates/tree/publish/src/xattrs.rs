//! All name spaces readable by this user, with ACLs.

use std::cell::RefCell;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;
use vouch_tree::Blob;
use vouch_tree::xattr::{SET_LEN_MAX, Xattrs};
use vouch_xdr::Xdr as _;

use crate::error::FileError;
use crate::file::blob_of_bytes;
use crate::frames::Frames;

#[derive(Debug, Clone, Copy)]
pub(crate) enum FileOrName<'a> {
    Open(BorrowedFd<'a>),
    /// A file that cannot or must not be opened.
    Named(BorrowedFd<'a>, &'a [u8]),
}

/// Stored as a frame if too long for the inode.
pub(crate) fn read(frames: &Frames<'_>, place: FileOrName<'_>) -> Result<Blob, FileError> {
    let path = match place {
        FileOrName::Open(_) => Vec::new(),
        // The open directory itself, whatever its path is now.
        FileOrName::Named(dir, name) => {
            [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), name].concat()
        }
    };
    BUFFERS.with_borrow_mut(|(names, value)| {
        names.resize(LIST_LEN_MAX, 0);
        let listed = match place {
            FileOrName::Open(fd) => rustix::fs::flistxattr(fd, names.as_mut_slice()),
            FileOrName::Named(..) => rustix::fs::llistxattr(path.as_slice(), names.as_mut_slice()),
        };
        let len = match listed {
            Ok(len) => len,
            Err(Errno::OPNOTSUPP) => 0,
            Err(Errno::RANGE | Errno::TOOBIG) => {
                return Err(FileError::Unsupported(
                    "has more than 64 KiB of names of extended attributes",
                ));
            }
            Err(error) => return Err(FileError::system("list the extended attributes")(error)),
        };
        if len == 0 {
            return Ok(Blob::empty());
        }
        value.resize(vouch_tree::xattr::VALUE_LEN_MAX, 0);
        let (mut pairs, mut total) = (Vec::new(), 0);
        for name in names[..len].split(|&b| b == 0).filter(|name| !name.is_empty()) {
            let got = match place {
                FileOrName::Open(fd) => rustix::fs::fgetxattr(fd, name, value.as_mut_slice()),
                FileOrName::Named(..) => {
                    rustix::fs::lgetxattr(path.as_slice(), name, value.as_mut_slice())
                }
            };
            let got = got.map_err(|error| match error {
                Errno::NODATA => FileError::Changed,
                Errno::RANGE | Errno::TOOBIG => {
                    FileError::Unsupported("has an extended attribute of more than 64 KiB")
                }
                error => FileError::system("read the extended attributes")(error),
            })?;
            total += (name.len() + got + 16) as u64;
            if total > SET_LEN_MAX {
                return Err(FileError::Unsupported("has more than 64 MiB of extended attributes"));
            }
            pairs.push((name.to_vec(), value[..got].to_vec()));
        }
        if pairs.is_empty() {
            Ok(Blob::empty())
        } else {
            blob_of_bytes(frames, &Xattrs::new(pairs).to_xdr())
        }
    })
}

const LIST_LEN_MAX: usize = 64 * 1024;

thread_local! {
    static BUFFERS: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}
