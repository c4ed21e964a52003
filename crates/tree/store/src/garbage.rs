//! Files that no manifest names any more, with times: readers of an earlier manifest may ask for
//! them. A directory has the list in the file `garbage`, a bucket in the object of this name.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::{Duration, SystemTime};

use crate::disk::Disk;
use crate::layout::{Layout, pack_path, segment_path};
use crate::manifest::Manifest;
use crate::writer::Writer;
use crate::{Error, Result};

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Garbage {
    /// Seconds since 1970 from which no manifest names the file.
    since: BTreeMap<String, u64>,
}

impl Garbage {
    /// Skips unreadable lines: their files wait again.
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let entries = text.lines().filter_map(|line| {
            let (since, name) = line.split_once(' ')?;
            let is_name = !name.chars().any(char::is_control);
            is_name.then_some((name.to_owned(), since.parse().ok()?))
        });
        Self { since: entries.collect() }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        self.since
            .iter()
            .map(|(name, since)| format!("{since} {name}\n"))
            .collect::<String>()
            .into_bytes()
    }

    /// Lists exactly these files. Times of files that were listed before stay.
    pub fn next(&self, unnamed: impl IntoIterator<Item = String>, now_s: u64) -> Self {
        // A future time comes from a wrong clock.
        let since = |name: &String| {
            self.since.get(name).copied().filter(|since| *since <= now_s).unwrap_or(now_s)
        };
        Self {
            since: unnamed
                .into_iter()
                .map(|name| (since(&name), name))
                .map(|(since, name)| (name, since))
                .collect(),
        }
    }

    pub fn expired(&self, now_s: u64, grace: Duration) -> Vec<String> {
        let is_over = |since: u64| now_s.saturating_sub(since) >= grace.as_secs();
        self.since
            .iter()
            .filter(|(_, since)| is_over(**since))
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub fn len(&self) -> usize {
        self.since.len()
    }

    pub fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    pub(crate) fn lists(&self, name: &str) -> bool {
        self.since.contains_key(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.since.keys().cloned()
    }

    pub(crate) fn read(layout: &Layout) -> Result<Self> {
        let path = layout.garbage();
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Self::parse(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    /// Before the manifest that drops the files: recovery removes or adopts unnamed files that are
    /// not listed.
    pub(crate) fn write(&self, layout: &Layout, disk: &dyn Disk) -> Result<()> {
        let (next, path) = (layout.garbage_next(), layout.garbage());
        if next.exists() {
            disk.remove(&next).map_err(Error::io("remove", &next))?;
        }
        let file = disk.create(&next).map_err(Error::io("create", &next))?;
        file.append(&[&self.to_bytes()]).map_err(Error::io("write", &next))?;
        file.sync().map_err(Error::io("sync", &next))?;
        disk.rename(&next, &path).map_err(Error::io("replace", &path))?;
        disk.sync_dir(layout.root()).map_err(Error::io("sync", layout.root()))
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Expired {
    pub(crate) removed_files: u64,
    pub(crate) waiting_files: u64,
}

impl Writer {
    /// Lists files that `next` no longer names. A collection lists those of a bucket.
    pub(crate) fn record_garbage(&self, before: &Manifest, next: &Manifest) -> Result<()> {
        let layout = &self.file_factory.layout;
        let unnamed = dropped_paths(before, next);
        if layout.bucket().is_some() || unnamed.is_empty() {
            return Ok(());
        }
        let mut garbage = self.garbage.lock();
        let next = garbage.next(garbage.names().chain(unnamed), now_s());
        next.write(layout, &*self.file_factory.disk)?;
        *garbage = next;
        Ok(())
    }

    pub(crate) fn remove_expired(&self, grace: Duration) -> Result<Expired> {
        let layout = &self.file_factory.layout;
        let Some(bucket) = layout.bucket() else { return self.remove_expired_files(grace) };
        let (named, now_s) = (self.committed.lock().paths(), now_s());
        let garbage =
            bucket.record_garbage(&named, now_s).map_err(Error::io("list", layout.name()))?;
        let expired = garbage.expired(now_s, grace);
        if !expired.is_empty() {
            // A new generation: a writer that lost its lock cannot commit objects removed here.
            self.checkpoint()?;
            bucket.delete(&expired).map_err(Error::io("clean", layout.name()))?;
        }
        Ok(Expired {
            removed_files: expired.len() as u64,
            waiting_files: (garbage.len() - expired.len()) as u64,
        })
    }

    /// Of a directory. The files go before their record: after a crash, absent ones are skipped.
    pub(crate) fn remove_expired_files(&self, grace: Duration) -> Result<Expired> {
        let file_factory = &self.file_factory;
        let mut garbage = self.garbage.lock();
        let now_s = now_s();
        let expired = garbage.next(garbage.names(), now_s).expired(now_s, grace);
        let removed: HashSet<String> =
            expired.into_iter().filter(|name| self.removes(name)).collect();
        let left = garbage.next(garbage.names().filter(|name| !removed.contains(name)), now_s);
        if left != *garbage {
            left.write(&file_factory.layout, &*file_factory.disk)?;
            *garbage = left;
        }
        Ok(Expired { removed_files: removed.len() as u64, waiting_files: garbage.len() as u64 })
    }

    fn removes(&self, name: &str) -> bool {
        let path = self.file_factory.layout.root().join(name);
        let removed = self.file_factory.disk.remove(&path);
        if let Err(error) = &removed {
            tracing::warn!(path = %path.display(), %error, "an old file could not be removed");
        }
        removed.is_ok()
    }
}

/// Of files that `next` does not name, below the database.
pub(crate) fn dropped_paths(before: &Manifest, next: &Manifest) -> Vec<String> {
    let packs: HashSet<u32> = next.packs.iter().map(|pack| pack.id).collect();
    let segments: HashSet<u32> = next.segments.iter().map(|segment| segment.id).collect();
    let packs = before
        .packs
        .iter()
        .filter(|pack| !packs.contains(&pack.id))
        .map(|pack| pack_path(pack.class, pack.id));
    let segments = before
        .segments
        .iter()
        .filter(|segment| !segments.contains(&segment.id))
        .map(|segment| segment_path(segment.id));
    packs.chain(segments).collect()
}

pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_expire_after_their_grace_period() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let first = Garbage::default().next(names(&["b", "c"]), 100);
        assert_eq!(first.expired(100, Duration::from_secs(10)), [""; 0]);
        assert_eq!(first.expired(100, Duration::ZERO), ["b", "c"]);
        let second = Garbage::parse(&first.to_bytes()).next(names(&["b", "d"]), 110);
        assert_eq!(second.expired(110, Duration::from_secs(10)), ["b"]);
        assert_eq!((second.lists("c"), second.lists("d"), second.len()), (false, true, 2));
        let third = second.next(names(&["a", "b"]), 50);
        assert_eq!(third.expired(59, Duration::from_secs(10)), [""; 0]);
        assert_eq!(third.expired(60, Duration::from_secs(10)), ["a", "b"]);
        assert_eq!(Garbage::parse(b"x y\n\xff\n7 d\n").len(), 1);
    }
}
