use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;

#[derive(Default)]
struct DiskState {
    visible: BTreeMap<PathBuf, Arc<Mutex<Bytes>>>,
    durable: BTreeMap<PathBuf, Arc<Mutex<Bytes>>>,
    steps_left: Option<u64>,
    steps_until_full: Option<u64>,
    unsyncable: Option<PathBuf>,
    is_power_off: bool,
}

#[derive(Default)]
struct Bytes {
    visible: Vec<u8>,
    durable: Vec<u8>,
    dirty: Vec<Range<usize>>,
    is_resized: bool,
}

impl Bytes {
    fn sync(&mut self) {
        if self.dirty.is_empty() && !self.is_resized {
            return;
        }
        self.durable.resize(self.visible.len(), 0);
        for range in &self.dirty {
            let range = range.start.min(self.visible.len())..range.end.min(self.visible.len());
            self.durable[range.clone()].copy_from_slice(&self.visible[range]);
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
    state: Arc<Mutex<DiskState>>,
    directory: PathBuf,
}

struct PowerFile {
    bytes: Arc<Mutex<Bytes>>,
    disk: PowerDisk,
}

impl PowerDisk {
    pub(super) fn new(directory: &Path) -> PowerDisk {
        PowerDisk { state: Arc::default(), directory: directory.to_owned() }
    }

    pub(super) fn cut_after(&self, steps: u64) {
        let mut state = self.state.lock();
        (state.steps_left, state.is_power_off) = (Some(steps), false);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.state.lock().steps_left == Some(0)
    }

    pub(super) fn refuse_after(&self, steps: u64) {
        self.state.lock().steps_until_full = Some(steps);
    }

    pub(super) fn set_unsyncable(&self, path: Option<PathBuf>) {
        self.state.lock().unsyncable = path;
    }

    fn step(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.steps_until_full = match state.steps_until_full {
            Some(0) => {
                state.steps_until_full = None;
                return Err(io::ErrorKind::StorageFull.into());
            }
            left => left.map(|left| left - 1),
        };
        match &mut state.steps_left {
            Some(0) => {
                state.is_power_off = true;
                Err(io::Error::other("the power is off"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn publish(&self) {
        for (path, file) in &self.state.lock().visible {
            std::fs::write(path, &file.lock().visible).unwrap();
        }
    }

    pub(super) fn clear(&self) {
        for entry in std::fs::read_dir(&self.directory).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }

    /// Synced names and bytes survive, and a random part of the rest.
    pub(super) fn cut(&self, random: &mut ChaCha8Rng) {
        self.clear();
        let mut state = self.state.lock();
        let mut names = state.durable.clone();
        for (path, file) in &state.visible {
            if !names.contains_key(path)
                && random.next_u32().is_multiple_of(2)
                && !path.to_string_lossy().contains("key")
            {
                names.retain(|_, other| !Arc::ptr_eq(file, other));
                names.insert(path.clone(), file.clone());
            }
        }
        for (path, file) in &names {
            let mut file = file.lock();
            let mut bytes = file.durable.clone();
            let unsynced_len = file.visible.len().saturating_sub(bytes.len());
            if unsynced_len > 0 {
                let keep = random.next_u32() as usize % (unsynced_len + 1);
                let from = bytes.len();
                bytes.extend_from_slice(&file.visible[from..from + keep]);
                if random.next_u32().is_multiple_of(3) {
                    let at = from + random.next_u32() as usize % (keep + 1);
                    bytes[at..].fill(0);
                }
            }
            std::fs::write(path, &bytes).unwrap();
            *file = Bytes { visible: bytes.clone(), durable: bytes, ..Bytes::default() };
        }
        state.visible = names.clone();
        state.durable = names;
        (state.steps_left, state.steps_until_full, state.is_power_off) = (None, None, false);
    }

    fn publish_small(&self, file: &Arc<Mutex<Bytes>>) {
        let state = self.state.lock();
        for (path, _) in state
            .visible
            .iter()
            .filter(|(path, other)| Arc::ptr_eq(file, other) && !is_segment(path))
        {
            std::fs::write(path, &file.lock().visible).unwrap();
        }
    }

    fn unpublish_small(&self, path: &Path) {
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
        let mut state = self.state.lock();
        if state.visible.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let bytes = Arc::new(Mutex::new(Bytes::default()));
        state.visible.insert(path.to_owned(), bytes.clone());
        drop(state);
        self.publish_small(&bytes);
        Ok(Box::new(PowerFile { bytes, disk: self.clone() }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let bytes = self.state.lock().visible.get(path).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(PowerFile { bytes, disk: self.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        let mut state = self.state.lock();
        let file = state.visible.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.visible.insert(to.to_owned(), file.clone());
        drop(state);
        self.unpublish_small(from);
        self.publish_small(&file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.state.lock().visible.remove(path).ok_or(io::ErrorKind::NotFound)?;
        self.unpublish_small(path);
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Lock> {
        Ok(Box::new(()))
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.step()?;
        let mut state = self.state.lock();
        state.durable = state.visible.clone();
        Ok(())
    }
}

impl DiskFile for PowerFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let was_power_off = self.disk.state.lock().is_power_off;
        let torn = self.disk.step();
        let mut file = self.bytes.lock();
        let start = offset as usize;
        let written =
            if was_power_off || start == 0 && bytes.len() == 512 { 0 } else { bytes.len() / 2 };
        let bytes = if torn.is_err() { &bytes[..written] } else { bytes };
        let end = start + bytes.len();
        if file.visible.len() < end {
            file.visible.resize(end, 0);
        }
        file.visible[start..end].copy_from_slice(bytes);
        file.dirty.push(start..end);
        drop(file);
        self.disk.publish_small(&self.bytes);
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
        file.visible.resize(len as usize, 0);
        file.is_resized = true;
        Ok(())
    }
}

impl PowerFile {
    fn syncable(&self) -> io::Result<()> {
        let state = self.disk.state.lock();
        let unsyncable = state.unsyncable.as_ref().and_then(|path| state.visible.get(path));
        let fails = unsyncable.is_some_and(|file| Arc::ptr_eq(file, &self.bytes));
        if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

#[test]
fn synced_records_survive_power_cut_at_1000_random_points() {
    for seed in 0..1000u64 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let directory = new_directory();
        let disk = PowerDisk::new(directory.path());
        create_key(&disk, &directory.path().join(KEY_FILE), &key()).unwrap();
        disk.publish();
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
        let (log, _) = Log::open(shared, directory.path(), options(), 9000 * SECOND)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        log.close(9000 * SECOND).unwrap();
        disk.clear();
        disk.publish();
        let report = verified(directory.path());
        assert_eq!(report.faults, [], "seed {seed}");
        let mut found = BTreeMap::new();
        for_each_record(directory.path(), |record| {
            found.insert(record.seq, record.path.to_vec());
        });
        for (seq, number) in acknowledged {
            let path = format!("/srv/data/file-{number}").into_bytes();
            assert_eq!(found.get(&seq), Some(&path), "seed {seed}: record {seq}");
        }
    }
}

#[test]
fn segment_is_not_written_before_previous_end_is_durable() {
    for (seed, is_closed_at_start, heals) in
        (0..30).flat_map(|seed| [(seed, false, false), (seed, true, false), (seed, false, true)])
    {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let directory = new_directory();
        let disk = PowerDisk::new(directory.path());
        create_key(&disk, &directory.path().join(KEY_FILE), &key()).unwrap();
        disk.publish();
        let open_by = |now| {
            Log::open(Arc::new(disk.clone()), directory.path(), options(), now).map(|(log, _)| log)
        };
        let mut log = open_by(SECOND).unwrap();
        (1..=3).for_each(|number| _ = put(&mut log, number, SECOND));
        log.sync().unwrap();
        let first = Some(SegmentFile::open(directory.path(), 1).path);
        if is_closed_at_start {
            drop(log);
            disk.publish();
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
        open_by(3 * SECOND)
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"))
            .close(3 * SECOND)
            .unwrap();
        disk.clear();
        disk.publish();
        let report = verified(directory.path());
        assert_eq!((report.faults, report.unsealed), (vec![], 0), "seed {seed}");
        assert!(!heals || report.records >= 6, "seed {seed}: {} records", report.records);
    }
}
