//! The bytes of a [`FileId`]: the kernel's file handle, and the number of its file system.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | 1: handle on the root's file system; 2: handle on another file system; 3: inode number and time of birth, without a handle; 4: file covered by a mount |
//! | 8 | number of the file system ([`Mount::fsid`](crate::mount::Mount)); absent in form 1; in form 3 the part of the file system within which inode numbers are unique |
//! | 4 | type of the handle; absent in form 3 |
//! | … | the handle; 8 to 20 bytes on common file systems |
//!
//! Forms 5 to 7 are in [`snapshots::identity`](crate::snapshots).
//!
//! A file covered by a mount: 4, its type (1 directory, 2 other), its inode number (8 bytes), and
//! the identity of its parent directory.
//!
//! All numbers are big-endian. A handle has inode and generation, so a reused inode number is a
//! different file.

use vouch_vfs::{FILE_ID_LEN_MAX, FileId, FileType, Home, SystemId};

use crate::ffi::KernelHandle;

const ON_ROOT: u8 = 1;
const ON_OTHER: u8 = 2;
const BY_NUMBER: u8 = 3;
const COVERED: u8 = 4;
pub(crate) const SNAPSHOT_LIST: u8 = 5;
pub(crate) const IN_SNAPSHOT: u8 = 6;
pub(crate) const SNAPSHOT_ENTRY: u8 = 7;

/// A directory below a mount point that is not crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    pub(crate) directory: FileId,
    pub(crate) inode: u64,
    pub(crate) file_type: FileType,
}

pub(crate) enum Identity {
    Handle(Option<u64>, KernelHandle),
    /// For comparison on a file system without handles.
    Number,
    Covered,
}

/// None if too long. `fsid`: file system, unless the root's.
pub(crate) fn id_of_handle(fsid: Option<u64>, handle: &KernelHandle) -> Option<FileId> {
    let mut bytes = [0; FILE_ID_LEN_MAX];
    let mut len = 0;
    let mut put = |part: &[u8]| {
        bytes.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
        Some(())
    };
    match fsid {
        None => put(&[ON_ROOT])?,
        Some(fsid) => {
            put(&[ON_OTHER])?;
            put(&fsid.to_be_bytes())?;
        }
    }
    put(&handle.kind.to_be_bytes())?;
    put(handle.bytes())?;
    FileId::new(&bytes[..len])
}

/// None if too long.
pub(crate) fn id_of_covered(covered: &Covered) -> Option<FileId> {
    let directory = covered.directory.as_bytes();
    let kind = if covered.file_type == FileType::Directory { 1 } else { 2 };
    FileId::new(&[&[COVERED, kind][..], &covered.inode.to_be_bytes(), directory].concat())
}

pub(crate) fn covered(id: &FileId) -> Option<Covered> {
    let [COVERED, kind, rest @ ..] = id.as_bytes() else { return None };
    let (inode, directory) = rest.split_first_chunk()?;
    let file_type = match kind {
        1 => FileType::Directory,
        2 => FileType::Regular,
        _ => return None,
    };
    Some(Covered {
        directory: FileId::new(directory)?,
        inode: u64::from_be_bytes(*inode),
        file_type,
    })
}

pub(crate) fn id_of_number(fsid: u64, inode: u64, birth: u64) -> FileId {
    let mut bytes = [BY_NUMBER; 25];
    bytes[1..9].copy_from_slice(&fsid.to_be_bytes());
    bytes[9..17].copy_from_slice(&inode.to_be_bytes());
    bytes[17..].copy_from_slice(&birth.to_be_bytes());
    FileId::new(&bytes).expect("25 bytes are within the limit")
}

pub(crate) fn is_number(id: &FileId) -> bool {
    id.as_bytes().first() == Some(&BY_NUMBER)
}

pub(crate) fn is_of_snapshot(id: &FileId) -> bool {
    matches!(id.as_bytes().first(), Some(&(SNAPSHOT_LIST | IN_SNAPSHOT | SNAPSHOT_ENTRY)))
}

pub(crate) fn parse(id: &FileId) -> Option<Identity> {
    let (&kind, rest) = id.as_bytes().split_first()?;
    if kind == COVERED {
        return covered(id).map(|_| Identity::Covered);
    }
    let (fsid, rest) = if kind == ON_ROOT {
        (None, rest)
    } else {
        let (fsid, rest) = rest.split_first_chunk()?;
        (Some(u64::from_be_bytes(*fsid)), rest)
    };
    match kind {
        ON_ROOT | ON_OTHER => {
            let (kind, bytes) = rest.split_first_chunk()?;
            Some(Identity::Handle(fsid, KernelHandle::new(i32::from_be_bytes(*kind), bytes)?))
        }
        BY_NUMBER if rest.len() == 16 => Some(Identity::Number),
        _ => None,
    }
}

pub(crate) fn home_of(id: &FileId, system: impl FnOnce(Option<u64>) -> SystemId) -> Home {
    match id.as_bytes().split_first() {
        Some((&ON_OTHER, rest)) => Home {
            system: system(rest.first_chunk().map(|fsid| u64::from_be_bytes(*fsid))),
            own_from: 9,
        },
        Some((&(COVERED | SNAPSHOT_LIST | IN_SNAPSHOT | SNAPSHOT_ENTRY), _)) => {
            Home { system: SystemId::UNKNOWN, own_from: 0 }
        }
        // Inode numbers must not be mistaken for handles.
        Some((&BY_NUMBER, _)) => Home { system: system(None).of_covered_directory(), own_from: 0 },
        _ => Home { system: system(None), own_from: 1 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_round_trips() {
        for fsid in [None, Some(0), Some(u64::MAX)] {
            let handle = KernelHandle::new(0x81, &[7; 20]).expect("short");
            let id = id_of_handle(fsid, &handle).expect("short");
            let Some(Identity::Handle(on, read)) = parse(&id) else { panic!("not a handle") };
            assert_eq!((on, read.kind, read.bytes()), (fsid, 0x81, &[7; 20][..]));
        }
        assert!(matches!(parse(&id_of_number(1, 2, 3)), Some(Identity::Number)));
    }

    #[test]
    fn foreign_identity_is_refused_and_long_handle_has_none() {
        for bytes in [&b""[..], &[0], &[1], &[1, 0, 0, 0], &[2, 0], &[3; 24], &[3; 26], &[4; 25]] {
            assert!(parse(&FileId::new(bytes).expect("short")).is_none(), "{bytes:?}");
        }
        assert!(
            id_of_handle(None, &KernelHandle::new(1, &[0; 60]).expect("within the kernel's limit"))
                .is_none()
        );
    }
}
