//! Hashes packs one by one, at the caller's pace, to find rotten bytes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::layout::pack_name;
use crate::marking::for_each_entry;
use crate::pack::{PackScan, Scanned};
use crate::view::View;
use crate::{Error, Result, Snapshot};

#[derive(Debug)]
pub struct Scrub<'a> {
    snapshot: &'a Snapshot,
    view: Arc<View>,
    indexed: HashMap<u32, u64>,
    next: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubbedPack {
    pub path: PathBuf,
    /// Indexed here, but missing or changed.
    pub damaged_frames: u64,
    pub problem: Option<String>,
}

impl Snapshot {
    /// O(frames) for the index; reads no packs.
    pub fn scrub(&self) -> Result<Scrub<'_>> {
        let view = self.view();
        let mut indexed = HashMap::new();
        for_each_entry(view.index(), |_, entry| {
            *indexed.entry(entry.place.pack).or_default() += 1;
            Ok(())
        })?;
        Ok(Scrub { snapshot: self, view, indexed, next: 0 })
    }
}

impl Scrub<'_> {
    /// Calls `pace` with the bytes of each frame; false ends the pass. `None` at its end.
    pub fn next(&mut self, pace: &mut dyn FnMut(u64) -> bool) -> Option<Result<ScrubbedPack>> {
        loop {
            let scrubbed = self.pack(self.next, pace)?;
            self.next += 1;
            // A collection may have removed the pack.
            let is_stale = || !self.view.is_current(self.snapshot.layout()).unwrap_or(true);
            match scrubbed {
                Ok(pack) if pack.damaged_frames > 0 && is_stale() => {}
                Err(error) if error.is_missing_file() && is_stale() => {}
                scrubbed => return Some(scrubbed),
            }
        }
    }

    fn pack(&self, at: usize, pace: &mut dyn FnMut(u64) -> bool) -> Option<Result<ScrubbedPack>> {
        let pack = self.view.manifest().packs.get(at)?;
        let layout = self.snapshot.layout();
        let path = match layout.bucket() {
            // Buckets: only packs with a local copy.
            Some(bucket) if !bucket.is_cached(&pack_name(pack.class, pack.id)) => {
                let path = layout.name().join("packs").join(pack_name(pack.class, pack.id));
                return Some(Ok(ScrubbedPack { path, damaged_frames: 0, problem: None }));
            }
            Some(_) => match layout.readable_pack(pack.class, pack.id) {
                Ok(path) => path,
                Err(error) => return Some(Err(error)),
            },
            None => layout.pack(pack.class, pack.id),
        };
        let expected = self.indexed.get(&pack.id).copied().unwrap_or(0);
        let mut scan = match PackScan::open(&path, pack.class, &self.view.iv(), pack.len) {
            Ok(Some(scan)) => scan,
            Ok(None) => return Some(Err(Error::damaged(&path, "not a pack of this database"))),
            Err(error) => return Some(Err(error)),
        };
        let (mut found, mut problem) = (0, None);
        loop {
            match scan.next() {
                Ok(Scanned::Record { offset, handle, frame, .. }) => {
                    match self.view.index().find(&handle) {
                        Ok(Some(place)) if (place.pack, place.offset) == (pack.id, offset) => {
                            found += 1
                        }
                        Ok(Some(_)) => {}
                        Ok(None) => {
                            problem = problem.or_else(|| {
                                Some(format!("the frame at offset {offset} is not in the index"))
                            })
                        }
                        Err(error) => return Some(Err(error)),
                    }
                    if !pace(frame.len() as u64) {
                        return None;
                    }
                }
                Ok(Scanned::End) => break,
                Ok(Scanned::Torn) => {
                    problem = Some(format!("no whole record at offset {}", scan.whole_len()));
                    break;
                }
                Err(error) => return Some(Err(error)),
            }
        }
        let damaged_frames = expected.saturating_sub(found);
        let problem = problem.filter(|_| damaged_frames > 0);
        Some(Ok(ScrubbedPack { path, damaged_frames, problem }))
    }
}

#[cfg(test)]
mod tests {
    use crate::conformance::{self, IV};
    use crate::{CollectOptions, Database, FrameSink as _, WriteOptions};
    use std::path::Path;
    use vouch_tree::{FrameKind, HostId};

    fn damaged(path: &Path) -> Vec<u64> {
        let snapshot = Database::open_read(path).unwrap();
        let mut scrub = snapshot.scrub().unwrap();
        std::iter::from_fn(|| scrub.next(&mut |_| true))
            .map(|pack| pack.unwrap().damaged_frames)
            .collect()
    }

    #[test]
    fn finds_bytes_that_changed_at_any_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        Database::create(&path, HostId::from_bytes([1; 32]), IV).unwrap();
        let writer = Database::open_write(&path, WriteOptions::default()).unwrap();
        for n in 0..20 {
            let (handle, frame) = conformance::frame(FrameKind::Leaf, n, 3000);
            writer.put(&handle, &frame).unwrap();
        }
        writer.checkpoint().unwrap();
        drop(writer);
        assert_eq!(damaged(&path), [0]);
        let pack = std::fs::read_dir(path.join("packs")).unwrap().next().unwrap().unwrap().path();
        let bytes = std::fs::read(&pack).unwrap();
        for at in (40..bytes.len()).step_by(997) {
            let mut rotten = bytes.clone();
            rotten[at] ^= 0x40;
            std::fs::write(&pack, &rotten).unwrap();
            assert!(damaged(&path)[0] > 0, "byte {at}");
        }
        std::fs::write(&pack, &bytes).unwrap();
        assert_eq!(damaged(&path), [0]);
        let snapshot = Database::open_read(&path).unwrap();
        assert!(snapshot.scrub().unwrap().next(&mut |_| false).is_none());
        let mut scrub = snapshot.scrub().unwrap();
        Database::collect(
            &path,
            CollectOptions {
                unfinished_age_max: std::time::Duration::ZERO,
                ..CollectOptions::default()
            },
        )
        .unwrap();
        assert!(scrub.next(&mut |_| true).is_none_or(|pack| pack.unwrap().damaged_frames == 0));
    }
}
