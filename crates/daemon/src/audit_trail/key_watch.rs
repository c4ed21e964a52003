//! Whether a file of keys was changed, which is an administrative act of whoever did it. Reads none
//! of it.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use vouch_audit::record::Act;
use vouch_audit::trail::Trail;

use super::act;
use super::written::{Keys, Stamp};

/// A file of keys, and how it was when it was last looked at.
pub struct KeyWatch {
    path: PathBuf,
    seen: Mutex<Option<Stamp>>,
}

impl KeyWatch {
    /// Remembers the file as it is now.
    pub fn new(path: PathBuf) -> KeyWatch {
        let seen = Mutex::new(stamp(&path));
        KeyWatch { path, seen }
    }

    /// How it was at the last look.
    pub fn seen(&self) -> Keys {
        Keys { path: self.path.as_os_str().as_bytes().to_owned(), stamp: *self.seen.lock() }
    }

    /// Records it if the file is another than at the last look, or is gone; whether it is.
    pub fn look(&self, trail: &Trail) -> bool {
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
}

fn stamp(path: &Path) -> Option<Stamp> {
    let of = std::fs::metadata(path).ok()?;
    // The time of the change can't be set by whoever writes.
    Some((of.ino(), of.size(), of.ctime(), of.ctime_nsec()))
}
