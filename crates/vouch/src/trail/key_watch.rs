//! Whether a file of keys was written anew, which is an administrative act of whoever did it. Reads none of it.

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

/// Device, inode number, length, and when it was changed.
type Stamp = (u64, u64, u64, i64, i64);

impl KeyWatch {
    pub(crate) fn new(path: PathBuf) -> KeyWatch {
        let seen = Mutex::new(stamp(&path));
        KeyWatch { path, seen }
    }

    /// Records it if the file is another than at the last look, or is gone.
    pub(crate) fn look(&self, trail: &Trail) {
        let now = stamp(&self.path);
        let before = std::mem::replace(&mut *self.seen.lock(), now);
        if before == now {
            return;
        }
        let what = if now.is_some() { "was written anew" } else { "is gone" };
        act(trail, Act::Key, b"", &format!("the keytab {} {what}", self.path.display()));
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let of = std::fs::metadata(path).ok()?;
    // The time of the change can't be set by whoever writes.
    Some((of.dev(), of.ino(), of.size(), of.ctime(), of.ctime_nsec()))
}
