//! The threads around a log: groups, policies when the disk refuses, rotation under load, retention.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// A disk that can be full.
#[derive(Clone, Default)]
struct FullDisk(Arc<AtomicBool>);

struct FullFile(Box<dyn DiskFile>, Arc<AtomicBool>);

fn room(full: &AtomicBool) -> io::Result<()> {
    if full.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
}

impl Disk for FullDisk {
    fn create(&self, path: &Path, secret: bool) -> io::Result<Box<dyn DiskFile>> {
        room(&self.0)?;
        Ok(Box::new(FullFile(SystemDisk.create(path, secret)?, self.0.clone())))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(FullFile(SystemDisk.open(path)?, self.0.clone())))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        SystemDisk.sync_dir(path)
    }
}

impl DiskFile for FullFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        room(&self.1)?;
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}

fn start(directory: &Path, disk: &FullDisk, keeping: Keeping, halt: impl Fn() + Send + 'static) -> Trail {
    begin(directory);
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let rotation = Rotation { len_max: 200_000, age_ns_max: 1000 * SECOND, seal_ns_max: SECOND };
    let log = Log::open(disk.clone(), directory, Options { rotation, ..options() }, SECOND).unwrap().0;
    Trail::start(log, disk, keeping, halt).unwrap()
}

fn record(path: &[u8], time_ns: u64) -> Record<'_> {
    Record { time_ns, class: Class::Operation, operation: 18, export: b"/srv", path, ..Record::default() }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Records of operations, and how many the gaps among them count.
fn read(directory: &Path) -> (Vec<Vec<u8>>, u64) {
    let (mut paths, mut lost) = (Vec::new(), 0);
    entries(directory, 1, |entry| {
        if entry.kind == crate::frame::Kind::Record {
            let mut scratch = Vec::new();
            let record = Record::decode(&entry.body, &mut scratch).unwrap();
            match record.class {
                Class::Operation => paths.push(record.path.to_vec()),
                Class::Gap => lost += record.gap.unwrap(),
                _ => {}
            }
        }
        true
    })
    .unwrap();
    (paths, lost)
}

#[test]
fn records_of_many_threads_are_all_there_across_rotations() {
    let directory = tempfile::tempdir().unwrap();
    let trail = start(directory.path(), &FullDisk::default(), Keeping { policy: Policy::Block, ..Keeping::default() }, || ());
    let (threads, each) = (6, 2000);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let trail = &trail;
            scope.spawn(move || {
                for number in 0..each {
                    let path = format!("/srv/{thread}-{number}");
                    assert!(trail.record(&record(path.as_bytes(), SECOND + number)));
                }
            });
        }
    });
    trail.stop();
    let (mut paths, lost) = read(directory.path());
    paths.sort();
    paths.dedup();
    assert_eq!((paths.len() as u64, lost), (threads * each, 0));
    let report = verify(directory.path(), &trust(), |_, _| {}).unwrap();
    assert_eq!((report.faults, report.unsealed), (vec![], 0));
    // How many segments there are depends on how large groups were; all but the last are closed, and compressed before the threads end.
    let files = segments(directory.path()).unwrap();
    assert!(files.iter().rev().skip(1).all(|file| file.packed), "{files:?}");
}

#[test]
fn what_is_done_after_a_record_finds_it_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let trail = start(
        directory.path(),
        &FullDisk::default(),
        Keeping { policy: Policy::Block, durable: Durable::Each, ..Keeping::default() },
        || (),
    );
    for number in 0..50u64 {
        let path = format!("/srv/{number}");
        trail.record(&record(path.as_bytes(), SECOND));
        let (done, wait) = mpsc::channel();
        let place = directory.path().to_owned();
        trail.after(Box::new(move || done.send(read(&place).0.len()).unwrap()));
        assert_eq!(wait.recv_timeout(PATIENCE).unwrap() as u64, number + 1);
    }
}

#[test]
fn block_waits_for_a_full_disk_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FullDisk::default();
    let trail = start(directory.path(), &disk, Keeping { policy: Policy::Block, ring_len: 10_000, ..Keeping::default() }, || ());
    disk.0.store(true, Ordering::SeqCst);
    let done = Arc::new(AtomicUsize::new(0));
    let count = done.clone();
    trail.record(&record(b"/srv/first", SECOND));
    trail.after(Box::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    until("the disk refuses", || trail.counts().failures > 1);
    assert_eq!(done.load(Ordering::SeqCst), 0);
    assert!(!trail.is_healthy());
    disk.0.store(false, Ordering::SeqCst);
    until("what waited is done", || done.load(Ordering::SeqCst) == 1);
    trail.stop();
    assert_eq!(read(directory.path()), (vec![b"/srv/first".to_vec()], 0));
    assert_eq!(verify(directory.path(), &trust(), |_, _| {}).unwrap().faults, []);
}

#[test]
fn count_goes_on_and_the_gap_is_a_record() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FullDisk::default();
    // A ring of one record: the second is lost while the writer waits between its tries.
    let trail = start(directory.path(), &disk, Keeping { policy: Policy::Count, ring_len: 1, ..Keeping::default() }, || ());
    disk.0.store(true, Ordering::SeqCst);
    let mut kept = 0u64;
    until("a record is lost", || {
        trail.record(&record(b"/srv/x", SECOND));
        trail.counts().failures > 0 && !trail.record(&record(b"/srv/y", SECOND))
    });
    disk.0.store(false, Ordering::SeqCst);
    until("the disk takes them again", || trail.counts().lost > 0 && trail.is_healthy());
    let counts = trail.counts();
    trail.stop();
    let (paths, lost) = read(directory.path());
    kept += paths.len() as u64;
    assert!(lost >= 1 && lost == counts.lost && kept > 0, "{lost} {counts:?} {kept}");
    assert_eq!(verify(directory.path(), &trust(), |_, _| {}).unwrap().faults, []);
}

#[test]
fn halt_is_called_once_when_records_can_not_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FullDisk::default();
    let (halted, told) = mpsc::channel();
    let trail = start(directory.path(), &disk, Keeping { policy: Policy::Halt, ..Keeping::default() }, move || halted.send(()).unwrap());
    disk.0.store(true, Ordering::SeqCst);
    trail.record(&record(b"/srv/x", SECOND));
    told.recv_timeout(PATIENCE).unwrap();
    until("it is tried again", || trail.counts().failures > 1);
    disk.0.store(false, Ordering::SeqCst);
    trail.stop();
    assert!(told.try_recv().is_err());
}

#[test]
fn retention_removes_the_oldest_and_what_is_left_verifies_from_the_first_key() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 100);
    let files = segments(directory.path()).unwrap();
    let none = Retention { len_max: Some(1), age_ns_min: 1 << 62, ..Retention::default() };
    assert_eq!(prune(&SystemDisk, directory.path(), &none, 200 * SECOND).unwrap(), 0);
    let half = Retention { age_ns_max: Some(150 * SECOND), ..Retention::default() };
    let removed = prune(&SystemDisk, directory.path(), &half, 200 * SECOND).unwrap();
    assert!(removed > 1 && removed < files.len() as u64 - 2, "{removed} of {}", files.len());
    let report = verify(directory.path(), &trust(), |_, _| {}).unwrap();
    assert_eq!(report.faults, []);
    let all = Retention { len_max: Some(1), ..Retention::default() };
    prune(&SystemDisk, directory.path(), &all, 200 * SECOND).unwrap();
    assert_eq!(segments(directory.path()).unwrap().len(), 2);
    assert_eq!(verify(directory.path(), &trust(), |_, _| {}).unwrap().faults, []);
    open(directory.path(), 300 * SECOND).close(300 * SECOND).unwrap();
    assert_eq!(verify(directory.path(), &trust(), |_, _| {}).unwrap().faults, []);
    // One removed by hand is still missed.
    std::fs::remove_file(&segments(directory.path()).unwrap()[0].path).unwrap();
    assert_eq!(verify(directory.path(), &trust(), |_, _| {}).unwrap().faults.len(), 1);
}

#[test]
fn who_searches_finds_indexes_that_the_writer_has_built() {
    let directory = tempfile::tempdir().unwrap();
    let trail = start(directory.path(), &FullDisk::default(), Keeping { policy: Policy::Block, ..Keeping::default() }, || ());
    for number in 0..8000u64 {
        let path = format!("/srv/{}", number % 100);
        assert!(trail.record(&record(path.as_bytes(), SECOND + number)));
    }
    trail.stop();
    let query = Query { path: b"/srv/7".to_vec(), ..Query::default() };
    let ask = || {
        let mut hits = 0;
        let searched = search(directory.path(), &query, false, Reading::Index, |_| {
            hits += 1;
            true
        });
        (hits, searched.unwrap())
    };
    let (hits, searched) = ask();
    assert_eq!((hits, searched.built), (80, 0));
    // How many segments there are depends on how large groups were; only the last one has no index.
    assert!(searched.segments >= 2 && searched.scanned == 1, "{searched:?}");
    // One that was lost is built by the next writer.
    let lost = directory.path().join(format!("{:012}.{INDEX}", 1));
    std::fs::remove_file(&lost).unwrap();
    let log = open(directory.path(), 100 * SECOND);
    let trail = Trail::start(log, Arc::new(SystemDisk), Keeping::default(), || ()).unwrap();
    until("the index is built anew", || lost.exists());
    trail.stop();
    assert_eq!((ask().0, ask().1.built), (80, 0));
}
