//! The part of a file system that a mount shows.

use std::os::fd::BorrowedFd;

use rustix::fs::{self, AtFlags, StatxFlags};
use rustix::io::Errno;

use crate::ffi;
use crate::mount::fsid_of;
use crate::mount_table::{MountLine, MountView};

/// By its top directory, or its only file. Bind mounts and subvolumes show parts.
pub(crate) struct Subtree {
    fsid: u64,
    inode: u64,
    /// The kernel's handle of the top, which stays when the directory is renamed.
    handle: Vec<u8>,
}

const BTRFS_TOP: u64 = 256;
const CEPH_TOP: u64 = 1;

impl Subtree {
    /// `top`: the root of a mount, or the exported directory.
    pub(crate) fn of(top: BorrowedFd<'_>) -> Result<Self, Errno> {
        let stat = fs::statx(top, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
        let handle = match ffi::name_to_handle(top, c"") {
            Ok((handle, _)) => [&handle.kind.to_be_bytes(), handle.bytes()].concat(),
            Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => stat.stx_ino.to_be_bytes().to_vec(),
            Err(errno) => return Err(errno),
        };
        Ok(Subtree {
            fsid: fsid_of(top, (stat.stx_dev_major, stat.stx_dev_minor))?,
            inode: stat.stx_ino,
            handle,
        })
    }

    /// The number of a mount below the root in identities, the same after each restart. The plain
    /// number stands for the whole file system only: each file is below such a mount.
    pub(crate) fn number(
        &self,
        line: &MountLine,
        view: &MountView,
        root: &Subtree,
        root_view: &MountView,
    ) -> u64 {
        let is_plain = if self.fsid == root.fsid {
            self.handle == root.handle && view == root_view
        } else {
            let is_writable = !view.is_read_only || line.is_system_read_only;
            self.is_whole(line) && is_writable && view.mapped_at.is_none()
        };
        if is_plain {
            return self.fsid;
        }
        let mapped_at = view.mapped_at.as_deref().unwrap_or_default();
        let mut hasher = blake3::Hasher::new_derive_key("vouch view of a mount 2");
        hasher
            .update(&self.fsid.to_be_bytes())
            .update(&[view.is_read_only.into(), view.mapped_at.is_some().into()]);
        hasher
            .update(&(mapped_at.len() as u64).to_be_bytes())
            .update(mapped_at)
            .update(&self.handle);
        u64::from_be_bytes(
            *hasher.finalize().as_bytes().first_chunk().expect("a BLAKE3 hash has 32 bytes"),
        )
    }

    /// Subvolumes of btrfs have numbers of their own. CephFS lists no part that a mount shows.
    fn is_whole(&self, line: &MountLine) -> bool {
        match line.kind.as_slice() {
            b"btrfs" => self.inode == BTRFS_TOP,
            b"ceph" => self.inode == CEPH_TOP,
            _ => line.is_of_system_root,
        }
    }
}
