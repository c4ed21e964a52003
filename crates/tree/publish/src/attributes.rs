//! Attributes from statx(2), and fingerprints that detect changes.

use rustix::fs::{AtFlags, FileType, StatxFlags, StatxTimestamp};
use std::os::fd::BorrowedFd;
use vouch_tree::{Iv, Timestamp};

use crate::error::FileError;

/// Equal before and after reading: the file did not change, as far as timestamps show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) rdev: (u32, u32),
    pub(crate) size: u64,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
}

impl Attributes {
    /// Follows no links, triggers no mounts.
    pub(crate) fn of_name(
        dir: BorrowedFd<'_>,
        name: &[u8],
        alias: DeviceAlias,
    ) -> Result<Self, FileError> {
        Self::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, alias)
    }

    pub(crate) fn of_fd(fd: BorrowedFd<'_>, alias: DeviceAlias) -> Result<Self, FileError> {
        Self::statx(fd, b"", AtFlags::EMPTY_PATH, alias)
    }

    fn statx(
        dir: BorrowedFd<'_>,
        name: &[u8],
        flags: AtFlags,
        alias: DeviceAlias,
    ) -> Result<Self, FileError> {
        let stat = rustix::fs::statx(dir, name, flags, StatxFlags::BASIC_STATS)
            .map_err(FileError::system("read the attributes"))?;
        let time = |t: StatxTimestamp| Timestamp { s: t.tv_sec, ns: t.tv_nsec.min(999_999_999) };
        Ok(Self {
            dev: alias.of(rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)),
            ino: stat.stx_ino,
            mode: stat.stx_mode.into(),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            nlink: stat.stx_nlink,
            rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
            size: stat.stx_size,
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
        })
    }

    pub(crate) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.nlink > 1 && !self.is_directory()
    }

    pub(crate) const fn permissions(&self) -> u16 {
        (self.mode & 0o7777) as u16
    }

    pub(crate) const fn is_readable_by_others(&self) -> bool {
        self.mode & 0o004 != 0
    }

    pub(crate) const fn is_open_to_others(&self) -> bool {
        self.mode & 0o001 != 0
    }

    pub(crate) const fn identity(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    /// A change right after `now` might not show in the timestamps (git's "racily clean" entries).
    pub(crate) fn is_racy(&self, now: Timestamp) -> bool {
        self.ctime.s > now.s.saturating_sub(RACY_S)
    }

    pub(crate) fn fingerprint(&self, iv: &Iv, name: &[u8], content: &[u8]) -> Fingerprint {
        let mut state = [0u8; 96];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            state[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&[name.len() as u8]);
        for n in [self.dev, self.ino, self.size, self.mtime.s as u64, self.ctime.s as u64] {
            put(&n.to_le_bytes());
        }
        // ctime covers these, on file systems that keep it.
        for n in [
            self.mode,
            self.uid,
            self.gid,
            self.nlink,
            self.rdev.0,
            self.rdev.1,
            self.mtime.ns,
            self.ctime.ns,
        ] {
            put(&n.to_le_bytes());
        }
        let mut whole = [0u8; 96 + 255 + 64];
        let mut len = 0;
        for part in [&state[..at], name, content] {
            let end = (len + part.len()).min(whole.len());
            whole[len..end].copy_from_slice(&part[..end - len]);
            len = end;
        }
        let hash = blake3::keyed_hash(iv.as_bytes(), &whole[..len]);
        let mut print = [0; Fingerprint::LEN];
        print.copy_from_slice(&hash.as_bytes()[..Fingerprint::LEN]);
        Fingerprint(print)
    }
}

/// Each snapshot has another device number. Under the live directory's, the stat cache and hard
/// links know its files again, and the check for private keys does.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceAlias(Option<(u64, u64)>);

impl DeviceAlias {
    pub(crate) fn new(snapshot: u64, live: u64) -> Self {
        Self(Some((snapshot, live)))
    }

    fn of(self, device: u64) -> u64 {
        match self.0 {
            Some((snapshot, live)) if device == snapshot => live,
            _ => device,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fingerprint([u8; Self::LEN]);

impl Fingerprint {
    pub(crate) const LEN: usize = 16;

    /// The next publication reads the file.
    pub(crate) const UNTRUSTED: Self = Self([0; Self::LEN]);

    pub(crate) const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

pub(crate) fn now() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Timestamp { s: now.tv_sec, ns: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// Coarser than all timestamps in use (FAT: 2 s).
const RACY_S: i64 = 2;
