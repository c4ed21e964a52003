//! Whether a file of keys was changed, which is an administrative act of whoever did it. Reads none of it.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use vouch_audit::record::Act;
use vouch_audit::trail::Trail;

use super::act;

/// A file of keys, and how it was when it was last looked at.
pub(crate) struct KeyWatch {
    path: PathBuf,
    seen: Mutex<Option<Stamp>>,
}

/// Inode number, length, and when it was changed: seconds, and nanoseconds. Not the device, whose number another boot may give to another.
pub(super) type Stamp = (u64, u64, i64, i64);

/// A file of keys as it is kept for the next start: its path, and how it was; none if it was not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(super) path: Vec<u8>,
    pub(super) stamp: Option<Stamp>,
}

impl KeyWatch {
    pub(crate) fn new(path: PathBuf) -> KeyWatch {
        let seen = Mutex::new(stamp(&path));
        KeyWatch { path, seen }
    }

    /// How it was at the last look.
    pub(crate) fn seen(&self) -> Keys {
        Keys { path: self.path.as_os_str().as_bytes().to_owned(), stamp: *self.seen.lock() }
    }

    /// Records it if the file is another than at the last look, or is gone; whether it is.
    pub(crate) fn look(&self, trail: &Trail) -> bool {
        let now = stamp(&self.path);
        let before = std::mem::replace(&mut *self.seen.lock(), now);
        if before == now {
            return false;
        }
        let what = if now.is_some() { "was changed" } else { "is gone" };
        act(trail, Act::Key, b"", &format!("the keytab {} {what}", self.path.display()));
        true
    }
}

impl Keys {
    /// What has become of them since, in words; nothing if they are as they were.
    pub(super) fn told(&self, before: &Keys) -> Option<String> {
        let name = |keys: &Keys| String::from_utf8_lossy(&keys.path).into_owned();
        match (self.path == before.path, self.stamp.is_some()) {
            (false, _) => Some(format!("the keytab is {}, and was {}", name(self), name(before))),
            (true, _) if self.stamp == before.stamp => None,
            (true, true) => Some(format!("the keytab {} was changed since the last stop", name(self))),
            (true, false) => Some(format!("the keytab {} is gone since the last stop", name(self))),
        }
    }

    pub(super) fn write(&self) -> String {
        let path = data_encoding::HEXLOWER.encode(&self.path);
        match self.stamp {
            Some((inode, len, seconds, nanos)) => format!("{path} {inode} {len} {seconds} {nanos}"),
            None => path,
        }
    }

    pub(super) fn read<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Keys> {
        let path = data_encoding::HEXLOWER.decode(words.next()?.as_bytes()).ok()?;
        let stamp = words.next().map(|inode| {
            let mut rest = || words.next()?.parse().ok();
            Some((inode.parse().ok()?, u64::try_from(rest()?).ok()?, rest()?, rest()?))
        });
        match stamp {
            Some(None) => None,
            stamp => Some(Keys { path, stamp: stamp.flatten() }),
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let of = std::fs::metadata(path).ok()?;
    // The time of the change can't be set by whoever writes.
    Some((of.ino(), of.size(), of.ctime(), of.ctime_nsec()))
}
