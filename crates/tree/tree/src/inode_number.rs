//! Inode numbers (st_ino) from the tree's key and the file's path: equal after a remount, in the
//! next revision, and on every machine. After a collision, callers retry with the next `attempt`.

use crate::{FileType, HostId, Inode};

/// An st_ino.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeNumber(pub u64);

impl InodeNumber {
    /// Root of a mount or export.
    pub const ROOT: Self = Self(1);
}

/// Numbers the files of one tree.
#[derive(Debug, Clone)]
pub struct InodeNumbering {
    key: [u8; 32],
}

impl InodeNumbering {
    /// Numbers a tree mounted or exported alone.
    pub fn of_tree(hostid: &HostId) -> Self {
        Self { key: blake3::derive_key(CONTEXT, hostid.to_string().as_bytes()) }
    }

    /// Numbers a tree inside a namespace, where one key may appear under several names.
    pub fn of_reference(name: &str) -> Self {
        Self { key: blake3::derive_key(CONTEXT, name.as_bytes()) }
    }

    /// The root directory inside a namespace.
    pub fn root(&self) -> InodeNumber {
        self.number(ROOT_TAG, FileType::Directory, 0, 0, b"")
    }

    /// Hard links share one number.
    pub fn of_file(
        &self,
        parent: InodeNumber,
        name: &[u8],
        inode: &Inode,
        attempt: u32,
    ) -> InodeNumber {
        match inode.link_group {
            0 => self.number(PATH_TAG, inode.file_type(), attempt, parent.0, name),
            group => self.number(GROUP_TAG, inode.file_type(), attempt, group, b""),
        }
    }

    fn number(
        &self,
        tag: u8,
        file_type: FileType,
        attempt: u32,
        of: u64,
        name: &[u8],
    ) -> InodeNumber {
        let mut input = [0; 14 + crate::name::FILE_NAME_LEN_MAX];
        input[0] = tag;
        input[1] = file_type as u8;
        input[2..6].copy_from_slice(&attempt.to_le_bytes());
        input[6..14].copy_from_slice(&of.to_le_bytes());
        let len = name.len().min(crate::name::FILE_NAME_LEN_MAX);
        input[14..14 + len].copy_from_slice(&name[..len]);
        let hash = blake3::keyed_hash(&self.key, &input[..14 + len]);
        let b = hash.as_bytes();
        let number = u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
        InodeNumber(if number > InodeNumber::ROOT.0 { number } else { number + FIRST })
    }
}

const CONTEXT: &str = "vouch 2026-11-21 inode numbers";
const FIRST: u64 = 1 << 32;
const PATH_TAG: u8 = 0;
const GROUP_TAG: u8 = 1;
const ROOT_TAG: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Blob, BlobBody, Content, Timestamp};

    fn file(len: usize, link_group: u64) -> Inode {
        let blob = Blob { size: len as u64, body: BlobBody::Inline(vec![b'x'; len]) };
        let content = Content::Regular { blob, space: 0 };
        Inode {
            uid: 1,
            gid: 2,
            mtime: Timestamp { s: 1, ns: 2 },
            link_group,
            ..Inode::new(0o644, content)
        }
    }

    fn numbering() -> InodeNumbering {
        InodeNumbering::of_tree(&HostId::of_root_key(&[1; 32]))
    }

    #[test]
    fn number_depends_on_tree_path_and_attempt_only() {
        let (a, mut changed) = (file(5, 0), file(7, 0));
        changed.mtime.s += 1;
        let n = numbering().of_file(InodeNumber::ROOT, b"a", &a, 0);
        assert_eq!(n, numbering().of_file(InodeNumber::ROOT, b"a", &changed, 0));
        assert_ne!(n, numbering().of_file(InodeNumber::ROOT, b"b", &a, 0));
        assert_ne!(n, numbering().of_file(InodeNumber(9), b"a", &a, 0));
        assert_ne!(n, numbering().of_file(InodeNumber::ROOT, b"a", &a, 1));
        assert_ne!(
            n,
            InodeNumbering::of_tree(&HostId::of_root_key(&[2; 32])).of_file(
                InodeNumber::ROOT,
                b"a",
                &a,
                0
            )
        );
    }

    #[test]
    fn hard_links_share_a_number() {
        let a = file(5, 77);
        let n = numbering().of_file(InodeNumber::ROOT, b"a", &a, 0);
        assert_eq!(n, numbering().of_file(InodeNumber(9), b"b", &a, 0));
        assert_ne!(n, numbering().of_file(InodeNumber::ROOT, b"a", &file(5, 78), 0));
    }
}
