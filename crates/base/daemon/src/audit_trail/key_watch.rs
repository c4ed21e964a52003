//! Changes of a key file are administrative acts. Never reads the file.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use vouch_audit::record::Act;
use vouch_audit::trail::Trail;

use super::act;
use super::configuration_text::{Keys, Stamp};

pub struct KeyWatch {
    path: PathBuf,
    seen: Mutex<Option<Stamp>>,
}

impl KeyWatch {
    pub fn new(path: PathBuf) -> KeyWatch {
        let seen = Mutex::new(stamp(&path));
        KeyWatch { path, seen }
    }

    pub fn seen(&self) -> Keys {
        Keys { path: self.path.as_os_str().as_bytes().to_owned(), stamp: *self.seen.lock() }
    }

    pub fn check(&self, trail: &Trail) -> bool {
        let now = stamp(&self.path);
        let before = std::mem::replace(&mut *self.seen.lock(), now);
        if before == now {
            return false;
        }
        let change = if now.is_some() { "was changed" } else { "is gone" };
        act(trail, Act::Key, b"", &format!("the keytab {} {change}", self.path.display()));
        true
    }
}

impl Keys {
    pub(super) fn describe(&self, before: &Keys) -> Option<String> {
        let name = |keys: &Keys| String::from_utf8_lossy(&keys.path).into_owned();
        match (self.path == before.path, self.stamp.is_some()) {
            (false, _) => Some(format!("the keytab is {}, and was {}", name(self), name(before))),
            (true, _) if self.stamp == before.stamp => None,
            (true, true) => {
                Some(format!("the keytab {} was changed since the last stop", name(self)))
            }
            (true, false) => Some(format!("the keytab {} is gone since the last stop", name(self))),
        }
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = std::fs::metadata(path).ok()?;
    // No program can set ctime.
    Some((metadata.ino(), metadata.size(), metadata.ctime(), metadata.ctime_nsec()))
}
