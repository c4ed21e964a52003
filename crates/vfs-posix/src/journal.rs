//! One commit for everything: where a file system's journal commits changes in the order in which
//! they were made, whatever was changed before is on the disk once a later change is. So a file
//! without a name is changed and synced in place of all files that somebody waits for.
//!
//! That order holds for ext4 with a journal (jbd2 commits one transaction after another, and a
//! change joins the running one or a later one) and for XFS (checkpoints of its log are written in
//! order, and forcing one forces those before). Btrfs logs single files, ext4 without a journal
//! writes single blocks: there each file is synced by itself.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

/// The journal of a file system that commits in order.
pub(crate) struct Journal {
    /// The file that is changed to have all changes committed; made when it is first needed.
    marker: RwLock<Option<OwnedFd>>,
    used: AtomicBool,
}

const EXT4_MAGIC: i64 = 0xef53;
const XFS_MAGIC: i64 = 0x5846_5342;

impl Journal {
    /// The journal of the file system of this kind on this device, if it has one that commits in
    /// order.
    pub(crate) fn of(kind: i64, device: (u32, u32)) -> Option<Self> {
        let ordered = match kind {
            XFS_MAGIC => true,
            EXT4_MAGIC => ext4_has_journal(device),
            _ => false,
        };
        ordered.then(|| Journal { marker: RwLock::default(), used: AtomicBool::new(false) })
    }

    /// Makes durable all changes of names and attributes that were made before. `directory`: any of
    /// the file system. As the superuser, or who runs the process.
    pub(crate) fn commit(&self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        self.used.store(true, Ordering::Relaxed);
        let marker = self.marker.read();
        match &*marker {
            Some(fd) => commit_with(fd),
            None => {
                drop(marker);
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
                let fd = fs::openat(directory, c".", flags, Mode::RUSR | Mode::WUSR)?;
                commit_with(&fd)?;
                self.marker.write().get_or_insert(fd);
                Ok(())
            }
        }
    }

    /// Housekeeping: lets go of a marker that was not used since the last time. As long as there is
    /// one the file system can't be mounted read-only.
    pub(crate) fn rest(&self) {
        if !self.used.swap(false, Ordering::Relaxed) {
            *self.marker.write() = None;
        }
    }
}

/// A change of mode is a change of the inode also where the mode stays, and so is part of a
/// transaction that is not older than any change made so far.
fn commit_with(marker: &OwnedFd) -> Result<(), Errno> {
    fs::fchmod(marker.as_fd(), Mode::RUSR | Mode::WUSR)?;
    fs::fsync(marker)
}

/// Asked of sysfs, which tells `<none>` in place of the journal's thread. Without sysfs: no.
fn ext4_has_journal((major, minor): (u32, u32)) -> bool {
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok();
    let name = device.as_deref().and_then(Path::file_name);
    name.and_then(|name| std::fs::read_to_string(Path::new("/sys/fs/ext4").join(name).join("journal_task")).ok())
        .is_some_and(|task| task.trim().parse::<i64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_may_be_asked_for_again_and_by_many() {
        let directory = tempfile::tempdir().expect("a directory");
        let fd = fs::open(directory.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("it is there");
        let journal = Journal { marker: RwLock::default(), used: AtomicBool::new(false) };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..3).for_each(|_| journal.commit(fd.as_fd()).expect("a file without a name can be made here")));
            }
        });
        journal.rest();
        assert!(journal.marker.read().is_some(), "it was used since");
        journal.rest();
        assert!(journal.marker.read().is_none());
        assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn what_is_not_known_to_commit_in_order_is_not_trusted() {
        const BTRFS_MAGIC: i64 = 0x9123_683e;
        assert!(Journal::of(BTRFS_MAGIC, (0, 1)).is_none());
        assert!(Journal::of(EXT4_MAGIC, (4095, 99_999)).is_none());
        assert!(Journal::of(XFS_MAGIC, (0, 1)).is_some());
    }
}
