//! A trail whose machine loses power, or whose process is killed, at any step of the disk: what was
//! said to be kept is there, in order, and the trail verifies.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;

/// A disk in memory; the directory, which trails are read from, is written when the power has gone
/// and come back. Of each file the durable bytes, and what was written since.
#[derive(Default)]
struct Inside {
    /// Bytes as the system sees them, and as they are on the platter. Names too.
    seen: BTreeMap<PathBuf, Arc<Mutex<Bytes>>>,
    durable: BTreeMap<PathBuf, Arc<Mutex<Bytes>>>,
    steps_left: Option<u64>,
    /// After so many steps there is no room for one.
    refused: Option<u64>,
    /// What is written to this file can't be synced.
    unsyncable: Option<PathBuf>,
    /// A step was refused: from then on nothing gets to the disk, not even a part.
    is_gone: bool,
}

#[derive(Default)]
struct Bytes {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Where the system knows that they differ: not where it has failed to sync them.
    dirty: Vec<Range<usize>>,
    /// The length is another.
    is_resized: bool,
}

impl Bytes {
    fn sync(&mut self) {
        if self.dirty.is_empty() && !self.is_resized {
            return;
        }
        self.durable.resize(self.seen.len(), 0);
        for range in &self.dirty {
            let range = range.start.min(self.seen.len())..range.end.min(self.seen.len());
            self.durable[range.clone()].copy_from_slice(&self.seen[range]);
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.dirty.clear();
        self.is_resized = false;
    }
}

#[derive(Clone)]
pub(super) struct PowerDisk {
    inside: Arc<Mutex<Inside>>,
    directory: PathBuf,
}

struct PowerFile {
    bytes: Arc<Mutex<Bytes>>,
    disk: PowerDisk,
}

impl PowerDisk {
    pub(super) fn new(directory: &Path) -> PowerDisk {
        PowerDisk { inside: Arc::default(), directory: directory.to_owned() }
    }

    /// The power goes after so many steps.
    pub(super) fn cut_after(&self, steps: u64) {
        let mut inside = self.inside.lock();
        (inside.steps_left, inside.is_gone) = (Some(steps), false);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.inside.lock().steps_left == Some(0)
    }

    /// After so many steps there is no room for one; what it was to sync, the system forgets.
    pub(super) fn refuse_after(&self, steps: u64) {
        self.inside.lock().refused = Some(steps);
    }

    /// From now on no sync of this file succeeds, if there is one.
    pub(super) fn set_unsyncable(&self, path: Option<PathBuf>) {
        self.inside.lock().unsyncable = path;
    }

    fn step(&self) -> io::Result<()> {
        let mut inside = self.inside.lock();
        inside.refused = match inside.refused {
            Some(0) => {
                inside.refused = None;
                return Err(io::ErrorKind::StorageFull.into());
            }
            left => left.map(|left| left - 1),
        };
        match &mut inside.steps_left {
            Some(0) => {
                inside.is_gone = true;
                Err(io::Error::other("the power is gone"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The reading side looks at the directory.
    pub(super) fn show(&self) {
        for (path, file) in &self.inside.lock().seen {
            std::fs::write(path, &file.lock().seen).unwrap();
        }
    }

    pub(super) fn clear(&self) {
        for entry in std::fs::read_dir(&self.directory).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }

    /// What is found after the power came back: names and bytes that were synced, and of the others
    /// some.
    pub(super) fn cut(&self, random: &mut ChaCha8Rng) {
        self.clear();
        let mut inside = self.inside.lock();
        let mut names = inside.durable.clone();
        // Names that were not synced may have become durable all the same; a file that was renamed has one.
        for (path, file) in &inside.seen {
            if !names.contains_key(path) && random.next_u32().is_multiple_of(2) && !path.to_string_lossy().contains("key") {
                names.retain(|_, other| !Arc::ptr_eq(file, other));
                names.insert(path.clone(), file.clone());
            }
        }
        for (path, file) in &names {
            let mut file = file.lock();
            let mut bytes = file.durable.clone();
            let more = file.seen.len().saturating_sub(bytes.len());
            if more > 0 {
                // Any part of what was written since, or blocks that were never filled.
                let keep = random.next_u32() as usize % (more + 1);
                let from = bytes.len();
                bytes.extend_from_slice(&file.seen[from..from + keep]);
                if random.next_u32().is_multiple_of(3) {
                    let at = from + random.next_u32() as usize % (keep + 1);
                    bytes[at..].fill(0);
                }
            }
            std::fs::write(path, &bytes).unwrap();
            *file = Bytes { seen: bytes.clone(), durable: bytes, ..Bytes::default() };
        }
        inside.seen = names.clone();
        inside.durable = names;
        (inside.steps_left, inside.refused, inside.is_gone) = (None, None, false);
    }

    /// Small files are looked at while the trail is written.
    fn show_small(&self, file: &Arc<Mutex<Bytes>>) {
        let inside = self.inside.lock();
        for (path, _) in inside.seen.iter().filter(|(path, other)| Arc::ptr_eq(file, other) && !is_segment(path)) {
            std::fs::write(path, &file.lock().seen).unwrap();
        }
    }

    /// Likewise that it is gone.
    fn hide_small(&self, path: &Path) {
        if !is_segment(path) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_segment(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "trail")
}

impl Disk for PowerDisk {
    fn create(&self, path: &Path, _: bool) -> io::Result<Box<dyn DiskFile>> {
        self.step()?;
        let mut inside = self.inside.lock();
        if inside.seen.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let bytes = Arc::new(Mutex::new(Bytes::default()));
        inside.seen.insert(path.to_owned(), bytes.clone());
        drop(inside);
        self.show_small(&bytes);
        Ok(Box::new(PowerFile { bytes, disk: self.clone() }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let bytes = self.inside.lock().seen.get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(PowerFile { bytes, disk: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        let mut inside = self.inside.lock();
        let file = inside.seen.remove(from).ok_or(io::ErrorKind::NotFound)?;
        inside.seen.insert(to.to_owned(), file.clone());
        drop(inside);
        self.hide_small(from);
        self.show_small(&file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.inside.lock().seen.remove(path).ok_or(io::ErrorKind::NotFound)?;
        self.hide_small(path);
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Lock> {
        Ok(Box::new(()))
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.step()?;
        let mut inside = self.inside.lock();
        inside.durable = inside.seen.clone();
        Ok(())
    }
}

impl DiskFile for PowerFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let was_gone = self.disk.inside.lock().is_gone;
        let torn = self.disk.step();
        let mut file = self.bytes.lock();
        let start = offset as usize;
        // The power goes in the middle of a write; not of a sector.
        let written = if was_gone || start == 0 && bytes.len() == 512 { 0 } else { bytes.len() / 2 };
        let bytes = if torn.is_err() { &bytes[..written] } else { bytes };
        let end = start + bytes.len();
        if file.seen.len() < end {
            file.seen.resize(end, 0);
        }
        file.seen[start..end].copy_from_slice(bytes);
        file.dirty.push(start..end);
        drop(file);
        self.disk.show_small(&self.bytes);
        torn
    }

    fn sync(&self) -> io::Result<()> {
        let done = self.disk.step().and_then(|()| self.syncable());
        let mut file = self.bytes.lock();
        match &done {
            Ok(()) => file.sync(),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => file.forget(),
            Err(_) => {}
        }
        done
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.step()?;
        let mut file = self.bytes.lock();
        file.seen.resize(len as usize, 0);
        file.is_resized = true;
        Ok(())
    }
}

impl PowerFile {
    fn syncable(&self) -> io::Result<()> {
        let inside = self.disk.inside.lock();
        let unsyncable = inside.unsyncable.as_ref().and_then(|path| inside.seen.get(path));
        let fails = unsyncable.is_some_and(|file| Arc::ptr_eq(file, &self.bytes));
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

#[test]
fn what_was_kept_is_there_after_a_power_cut_at_any_of_1000_instants() {
    for seed in 0..1000u64 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let disk = PowerDisk::new(directory.path());
        create(&disk, &directory.path().join(KEY), &key()).unwrap();
        disk.show();
        let mut acknowledged: Vec<(u64, u64)> = Vec::new();
        let mut number = 0;
        for life in 0..3u64 {
            disk.cut_after(u64::from(random.next_u32() % 120));
            let now = (life * 1000 + 1) * SECOND;
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            if let Ok((mut log, _)) = Log::open(shared, directory.path(), options(), now) {
                for turn in 0..40u64 {
                    let now = now + turn * SECOND;
                    let mut group = Vec::new();
                    for _ in 0..random.next_u32() % 4 {
                        number += 1;
                        group.push((put(&mut log, number, now), number));
                    }
                    // Only what was synced was acknowledged.
                    if log.sync().is_err() {
                        break;
                    }
                    acknowledged.extend(group);
                    if log.maintain(now).is_err() {
                        break;
                    }
                }
            }
            disk.cut(&mut random);
        }
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let (log, _) = Log::open(shared, directory.path(), options(), 9000 * SECOND).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        log.close(9000 * SECOND).unwrap();
        disk.clear();
        disk.show();
        let report = verify(directory.path(), &trust(), |_, _| {}).unwrap();
        assert_eq!(report.faults, [], "seed {seed}");
        let mut found = BTreeMap::new();
        entries(directory.path(), 1, |entry| {
            if entry.kind == crate::frame::Kind::Record {
                let mut scratch = Vec::new();
                let record = Record::decode(&entry.body, &mut scratch).unwrap();
                found.insert(record.seq, record.path.to_vec());
            }
            true
        })
        .unwrap();
        for (seq, number) in acknowledged {
            let path = format!("/srv/data/file-{number}").into_bytes();
            assert_eq!(found.get(&seq), Some(&path), "seed {seed}: record {seq}");
        }
    }
}

#[test]
fn nothing_of_a_segment_is_on_the_disk_before_the_end_of_the_one_before_whichever_of_them_the_system_writes_back() {
    for (seed, is_closed_at_start, heals) in (0..30).flat_map(|seed| [(seed, false, false), (seed, true, false), (seed, false, true)]) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let disk = PowerDisk::new(directory.path());
        create(&disk, &directory.path().join(KEY), &key()).unwrap();
        disk.show();
        let open_by = |now| Log::open(Arc::new(disk.clone()), directory.path(), options(), now).map(|(log, _)| log);
        let mut log = open_by(SECOND).unwrap();
        (1..=3).for_each(|number| _ = put(&mut log, number, SECOND));
        log.sync().unwrap();
        let first = Some(SegmentFile::open(directory.path(), 1).path);
        if is_closed_at_start {
            drop(log);
            disk.show();
            disk.set_unsyncable(first);
            log = open_by(2 * SECOND).unwrap();
        } else {
            disk.set_unsyncable(first);
            assert!(log.rotate(2 * SECOND).is_err());
        }
        for number in 4..=6 {
            put(&mut log, number, 2 * SECOND);
            assert!(log.write().is_err(), "seed {seed}");
        }
        if heals {
            disk.set_unsyncable(None);
            log.write().unwrap();
        }
        drop(log);
        disk.cut(&mut random);
        disk.set_unsyncable(None);
        open_by(3 * SECOND).unwrap_or_else(|error| panic!("seed {seed}: {error}")).close(3 * SECOND).unwrap();
        disk.clear();
        disk.show();
        let report = verify(directory.path(), &trust(), |_, _| {}).unwrap();
        assert_eq!((report.faults, report.unsealed), (vec![], 0), "seed {seed}");
        assert!(!heals || report.records >= 6, "seed {seed}: {} records", report.records);
    }
}
