//! What shows where another file system is mounted that is not of the export: the directory below it, empty and not to be changed, as the kernel's NFS server shows what is there.
//!
//! Without the right to take mounts apart nothing leads to what is covered but its inode number, which the directory above lists. So the rest is made up.

use std::ffi::CStr;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags, OFlags, RawDir, SeekFrom, StatxFlags};
use vouch_vfs::{Access, Attributes, DirectoryEntry, Error, FileId, FileType, Patience, Result};

use crate::errno::OrError;
use crate::export::Inner;
use crate::node::Node;
use crate::{handle, identity};

/// A directory, or whatever was mounted on, below another file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    /// The directory that it is in.
    pub(crate) directory: FileId,
    pub(crate) inode: u64,
    pub(crate) file_type: FileType,
}

impl Inner {
    /// What is covered at a name of a directory; `Access` if nothing is mounted there. O(n) in the directory.
    pub(crate) fn covered_at(&self, directory: &Node, name: &CStr, patience: Patience) -> Result<Covered> {
        if !is_mount_point(directory, name) {
            return Err(Error::Access);
        }
        directory.at_hand(patience)?;
        // The name is known to whoever asks, and what is listed of it is no secret.
        identity::assume_root()?;
        let fd = self.reopen(directory.as_fd(), OFlags::RDONLY | OFlags::DIRECTORY).or_error()?;
        fs::seek(&fd, SeekFrom::Start(0)).or_error()?;
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut listing = RawDir::new(&fd, buffer.spare_capacity_mut());
        while let Some(entry) = listing.next() {
            let entry = entry.or_error()?;
            if entry.file_name() == name {
                return Ok(covered(directory, entry.ino(), entry.file_type()));
            }
        }
        Err(Error::Access)
    }

    /// The same of an entry that was listed.
    pub(crate) fn covered_entry(&self, directory: &Node, name: &CStr, inode: u64, kind: fs::FileType) -> Option<Covered> {
        is_mount_point(directory, name).then(|| covered(directory, inode, kind))
    }

    /// Its attributes, as far as they are known.
    pub(crate) fn covered_attributes(&self, covered: &Covered, patience: Patience) -> Result<Attributes> {
        let above = self.node_by(&covered.directory, patience)?.attributes()?;
        if above.links == 0 {
            return Err(Error::Stale);
        }
        let directory = covered.file_type == FileType::Directory;
        Ok(Attributes {
            file_type: covered.file_type,
            mode: if directory { 0o555 } else { 0o444 },
            links: if directory { 2 } else { 1 },
            uid: 0,
            gid: 0,
            size: 0,
            space_used: 0,
            device: (0, 0),
            file_number: covered.inode,
            created: None,
            ..above
        })
    }

    /// The identity of what is covered; none for one whose directory has too long an identity.
    pub(crate) fn covered_id(&self, covered: &Covered) -> Result<FileId> {
        handle::id_of_covered(covered).ok_or(Error::Access)
    }
}

impl Covered {
    /// What this is by its identity; none if that is of a real file.
    pub(crate) fn of(id: &FileId) -> Option<Self> {
        handle::covered(id)
    }

    pub(crate) fn access(&self, wanted: Access) -> Access {
        let looked_at = if self.file_type == FileType::Directory { Access::READ | Access::LOOKUP } else { Access::default() };
        wanted & looked_at
    }

    /// Nothing is in it.
    pub(crate) fn list(&self, cookie: u64, _: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>) -> Result<bool> {
        match (self.file_type, cookie) {
            (FileType::Directory, 0) => Ok(true),
            (FileType::Directory, _) => Err(Error::BadCookie),
            _ => Err(Error::NotDirectory),
        }
    }

    /// It can't be opened, and nothing is found in it.
    pub(crate) fn refusal(&self, lookup: bool) -> Error {
        match (self.file_type, lookup) {
            (FileType::Directory, true) => Error::NotFound,
            (FileType::Directory, false) => Error::IsDirectory,
            (_, true) => Error::NotDirectory,
            (_, false) => Error::Access,
        }
    }
}

fn covered(directory: &Node, inode: u64, kind: fs::FileType) -> Covered {
    let file_type = match kind {
        fs::FileType::Directory | fs::FileType::Unknown => FileType::Directory,
        // Whatever else was mounted on is shown as a file of no bytes.
        _ => FileType::Regular,
    };
    Covered { directory: directory.id, inode, file_type }
}

/// Whether another file system is mounted at a name of the directory.
pub(crate) fn is_mount_point(directory: &Node, name: &CStr) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let mount = fs::statx(directory, name, flags, StatxFlags::MNT_ID).or_error();
    mount.is_ok_and(|found| i32::try_from(found.stx_mnt_id) != Ok(directory.mount.id))
}
