//! Identities that need no table: the path and type of a file, shortened if they are too long.
//!
//! The same path and type are the same file in every revision, on every server of the tree, and
//! after restarts. Two hard links have two identities and one inode number. Bytes of a [`FileId`]:
//!
//! | form | bytes |
//! |---|---|
//! | whole | `1t`, then the path: up to 63 bytes, components separated by `/`, empty for the root |
//! | trail | `2t`, 16 bytes of the path's hash, 2 bytes of the name hash of each of the first 23 directories below the root, then leading bytes of the last name as far as they fit |
//!
//! `t` is the file type's number in the tree format. Hashes are BLAKE3 keyed by the tree's HOSTID. A
//! file found by a trail is accepted only if its path has the stored hash.

use vouch_tree::{FileName, FileType, HostId};
use vouch_vfs::{Error, FILE_ID_LEN_MAX, FileId, Result, SystemId};

pub(crate) const MARKS_MAX: usize = (FILE_ID_LEN_MAX - HEAD_LEN) / MARK_LEN;

pub(crate) struct Identities {
    key: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Path(Box<[u8]>),
    Trail(Trail),
}

/// For a path that is too long for an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trail {
    pub(crate) hash: [u8; HASH_LEN],
    /// Marks of the first [`MARKS_MAX`] directories, then leading bytes of the last name. The
    /// border is not stored; the search tries all.
    pub(crate) rest: Box<[u8]>,
}

impl Identities {
    pub(crate) fn of_tree(hostid: &HostId) -> Self {
        Self { key: blake3::derive_key(CONTEXT, hostid.as_bytes()) }
    }

    pub(crate) fn system(&self) -> SystemId {
        let hash = blake3::keyed_hash(&self.key, b"system");
        SystemId::of_tree(u64::from_be_bytes(
            *hash.as_bytes().first_chunk().expect("a BLAKE3 hash has 32 bytes"),
        ))
    }

    pub(crate) fn of(&self, path: &[u8], file_type: FileType) -> FileId {
        let mut bytes = [0; FILE_ID_LEN_MAX];
        let len = if path.len() < FILE_ID_LEN_MAX {
            bytes[0] = WHOLE | file_type as u8;
            bytes[1..=path.len()].copy_from_slice(path);
            1 + path.len()
        } else {
            bytes[0] = TRAIL | file_type as u8;
            bytes[1..HEAD_LEN].copy_from_slice(&self.hash(path));
            let mut names = path.split(|&byte| byte == b'/');
            let last = names.next_back().unwrap_or_default();
            let mut at = HEAD_LEN;
            for name in names.take(MARKS_MAX) {
                bytes[at..at + MARK_LEN].copy_from_slice(&self.mark(name));
                at += MARK_LEN;
            }
            let lead = last.len().min(FILE_ID_LEN_MAX - at);
            bytes[at..at + lead].copy_from_slice(&last[..lead]);
            at + lead
        };
        FileId::new(&bytes[..len])
            .expect("no longer than FILE_ID_LEN_MAX by the array's own length")
    }

    pub(crate) fn place(id: &FileId) -> Result<(FileType, Address)> {
        let (&head, rest) = id.as_bytes().split_first().ok_or(Error::BadId)?;
        let file_type = type_of(head & TYPE_MASK).ok_or(Error::BadId)?;
        match head & !TYPE_MASK {
            WHOLE => {
                let named = rest.is_empty()
                    || rest.split(|&byte| byte == b'/').all(|name| FileName::parse(name).is_ok());
                if named { Ok((file_type, Address::Path(rest.into()))) } else { Err(Error::BadId) }
            }
            TRAIL => {
                let (hash, rest) = rest.split_first_chunk().ok_or(Error::BadId)?;
                Ok((file_type, Address::Trail(Trail { hash: *hash, rest: rest.into() })))
            }
            _ => Err(Error::BadId),
        }
    }

    pub(crate) fn hash(&self, path: &[u8]) -> [u8; HASH_LEN] {
        let hash = blake3::keyed_hash(&self.key, path);
        *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
    }

    pub(crate) fn mark(&self, name: &[u8]) -> [u8; MARK_LEN] {
        let hash = blake3::keyed_hash(&self.key, name);
        *hash.as_bytes().last_chunk().expect("a hash has 32 bytes")
    }

    pub(crate) fn fsid(&self) -> u64 {
        u64::from_le_bytes(*self.key.first_chunk().expect("a key has 32 bytes"))
    }
}

fn type_of(number: u8) -> Option<FileType> {
    use FileType::{BlockDevice, CharDevice, Directory, Fifo, Regular, Socket, Symlink};
    [Regular, Directory, Symlink, Fifo, Socket, CharDevice, BlockDevice]
        .into_iter()
        .find(|file_type| *file_type as u8 == number)
}

const CONTEXT: &str = "vouch 2026-11-21 file identities of an exported tree";
const WHOLE: u8 = 0x10;
const TRAIL: u8 = 0x20;
const TYPE_MASK: u8 = 0x0f;
pub(crate) const HASH_LEN: usize = 16;
pub(crate) const MARK_LEN: usize = 2;
const HEAD_LEN: usize = 1 + HASH_LEN;

#[cfg(test)]
mod tests {
    use super::*;

    fn identities() -> Identities {
        Identities::of_tree(&HostId::of_root_key(&[1; 32]))
    }

    #[test]
    fn short_paths_are_stored_and_long_ones_leave_a_trail() {
        let ids = identities();
        for path in [&b""[..], b"a", b"usr/lib/x", &[b'a'; 63]] {
            let id = ids.of(path, FileType::Symlink);
            assert_eq!(
                Identities::place(&id).unwrap(),
                (FileType::Symlink, Address::Path(path.into()))
            );
        }
        let path = [b"directory/".repeat(8).as_slice(), b"a rather long name of a file"].concat();
        let id = ids.of(&path, FileType::Regular);
        let (file_type, Address::Trail(trail)) = Identities::place(&id).unwrap() else {
            panic!("too long")
        };
        assert_eq!((file_type, trail.hash), (FileType::Regular, ids.hash(&path)));
        let marks: Vec<u8> = std::iter::repeat_n(ids.mark(b"directory"), 8).flatten().collect();
        assert_eq!(*trail.rest, [&marks[..], b"a rather long name of a file"].concat());
        let deep = b"d/".repeat(500);
        assert_eq!(ids.of(&deep[..999], FileType::Directory).as_bytes().len(), FILE_ID_LEN_MAX);
    }

    #[test]
    fn invalid_identities_are_refused() {
        for bytes in [
            &b""[..],
            b"\x10",
            b"\x18a",
            b"\x31a",
            b"\x11/a",
            b"\x11a//b",
            b"\x11..",
            b"\x11a\0",
            b"\x21short",
        ] {
            assert!(
                matches!(Identities::place(&FileId::new(bytes).unwrap()), Err(Error::BadId)),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn identities_differ_by_path_and_type_and_are_stable() {
        let (ids, long) = (identities(), [b'n'; 255]);
        assert_ne!(ids.of(&long, FileType::Regular), ids.of(&long, FileType::Directory));
        assert_ne!(ids.of(&long, FileType::Regular), ids.of(&long[1..], FileType::Regular));
        let golden = ids.of(&[&b"d/"[..], &long].concat(), FileType::Regular);
        assert_eq!(format!("{golden:?}")[..7 + 42], *GOLDEN);
    }

    const GOLDEN: &str = "FileId(21fc20c7218c4ad6a6753d67e1735d391ebd7b6e6e";
}
