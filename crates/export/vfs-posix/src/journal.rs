//! Group commit by the file system's journal. If the journal commits in order, one synced change
//! makes all earlier ones durable: the server changes and syncs an unnamed file in place of all
//! files that callers wait for.
//!
//! This holds for ext4 with a journal (jbd2) and for XFS. Btrfs logs single files and ext4 without
//! a journal writes single blocks: there each file is synced.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

pub(crate) struct Journal {
    marker: RwLock<Option<OwnedFd>>,
    used: AtomicBool,
}

const EXT4_MAGIC: i64 = 0xef53;
const XFS_MAGIC: i64 = 0x5846_5342;

impl Journal {
    /// None if the journal does not commit in order.
    pub(crate) fn of(kind: i64, device: (u32, u32)) -> Option<Self> {
        let ordered = match kind {
            XFS_MAGIC => true,
            EXT4_MAGIC => ext4_has_journal(device),
            _ => false,
        };
        ordered.then(|| Journal { marker: RwLock::default(), used: AtomicBool::new(false) })
    }

    /// Makes all earlier changes of names and attributes durable. `directory`: any of the file
    /// system. Runs as the superuser or the process's user.
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

    /// An unused marker would prevent a read-only remount.
    pub(crate) fn close_idle_marker(&self) {
        if !self.used.swap(false, Ordering::Relaxed) {
            *self.marker.write() = None;
        }
    }
}

/// A chmod changes the inode even if the mode stays: its transaction is not older than any earlier
/// change.
fn commit_with(marker: &OwnedFd) -> Result<(), Errno> {
    fs::fchmod(marker.as_fd(), Mode::RUSR | Mode::WUSR)?;
    fs::fsync(marker)
}

/// From sysfs, which shows `<none>` without a journal. False without sysfs.
fn ext4_has_journal((major, minor): (u32, u32)) -> bool {
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok();
    let name = device.as_deref().and_then(Path::file_name);
    name.and_then(|name| {
        std::fs::read_to_string(Path::new("/sys/fs/ext4").join(name).join("journal_task")).ok()
    })
    .is_some_and(|task| task.trim().parse::<i64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_and_concurrent_commits_work() {
        let directory = tempfile::tempdir().expect("a directory");
        let fd = fs::open(directory.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .expect("the file exists");
        let journal = Journal { marker: RwLock::default(), used: AtomicBool::new(false) };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    (0..3).for_each(|_| {
                        journal.commit(fd.as_fd()).expect("the file system has unnamed files")
                    })
                });
            }
        });
        journal.close_idle_marker();
        assert!(
            journal.marker.read().is_some(),
            "a marker that was used since the last tick stays open"
        );
        journal.close_idle_marker();
        assert!(journal.marker.read().is_none());
        assert_eq!(std::fs::read_dir(directory.path()).expect("the file exists").count(), 0);
    }

    #[test]
    fn unknown_file_systems_are_not_trusted() {
        const BTRFS_MAGIC: i64 = 0x9123_683e;
        assert!(Journal::of(BTRFS_MAGIC, (0, 1)).is_none());
        assert!(Journal::of(EXT4_MAGIC, (4095, 99_999)).is_none());
        assert!(Journal::of(XFS_MAGIC, (0, 1)).is_some());
    }
}
