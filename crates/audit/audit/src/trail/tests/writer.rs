use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::faulty_disk::FaultyDisk;
use super::*;

const WAIT_MAX: Duration = Duration::from_secs(60);
const SEGMENT_LEN_MAX: u64 = 200_000;

pub(super) fn start(
    directory: &Path,
    disk: &FaultyDisk,
    writer_options: WriterOptions,
    halt: impl Fn() + Send + 'static,
) -> Trail {
    create_trail(directory);
    reopen(directory, disk, writer_options, halt)
}

pub(super) fn reopen(
    directory: &Path,
    disk: &FaultyDisk,
    writer_options: WriterOptions,
    halt: impl Fn() + Send + 'static,
) -> Trail {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let rotation =
        Rotation { len_max: SEGMENT_LEN_MAX, age_ns_max: 1000 * SECOND, seal_ns_max: SECOND };
    let log =
        Log::open(disk.clone(), directory, Options { rotation, ..options() }, SECOND).unwrap().0;
    Trail::start(log, disk, writer_options, halt).unwrap()
}

pub(super) fn record(path: &[u8], time_ns: u64) -> Record<'_> {
    Record {
        time_ns,
        class: Class::Operation,
        operation: 18,
        export: b"/srv",
        path,
        ..Record::default()
    }
}

pub(super) fn wait_for(description: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < WAIT_MAX, "timed out waiting for {description}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn read(directory: &Path) -> (Vec<Vec<u8>>, u64) {
    let (mut paths, mut lost) = (Vec::new(), 0);
    for_each_record(directory, |record| match record.class {
        Class::Operation => paths.push(record.path.to_vec()),
        Class::Gap => lost += record.gap.unwrap(),
        _ => {}
    });
    (paths, lost)
}

#[test]
fn records_of_many_threads_survive_rotation_and_full_rings() {
    for policy in [Policy::Block, Policy::Count] {
        let directory = new_directory();
        let trail = start(
            directory.path(),
            &FaultyDisk::default(),
            WriterOptions { policy, ring_len: 2000, ..WriterOptions::default() },
            || (),
        );
        let (threads, each) = (6, 2000);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let trail = &trail;
                scope.spawn(move || {
                    for number in 0..each {
                        let path = format!("/srv/{thread}-{number}");
                        assert!(
                            trail.record(&record(path.as_bytes(), SECOND + number)),
                            "{policy:?}: lost {thread}-{number}"
                        );
                    }
                });
            }
        });
        trail.stop();
        let (mut paths, lost) = read(directory.path());
        paths.sort();
        paths.dedup();
        assert_eq!((paths.len() as u64, lost), (threads * each, 0), "{policy:?}");
        assert_sealed(directory.path(), &format!("{policy:?}"));
        let last = segments(directory.path()).unwrap().len();
        let trail =
            reopen(directory.path(), &FaultyDisk::default(), WriterOptions::default(), || ());
        wait_for("compressed segments", || {
            segments(directory.path()).unwrap()[..last].iter().all(|file| file.is_compressed)
        });
        trail.stop();
    }
}

#[test]
fn callback_runs_after_record_is_on_disk() {
    let directory = new_directory();
    let trail = start(
        directory.path(),
        &FaultyDisk::default(),
        WriterOptions {
            policy: Policy::Block,
            durability: Durability::Each,
            ..WriterOptions::default()
        },
        || (),
    );
    for number in 0..50u64 {
        let path = format!("/srv/{number}");
        trail.record(&record(path.as_bytes(), SECOND));
        let (done, wait) = mpsc::channel();
        let place = directory.path().to_owned();
        trail.call_when_stored(Box::new(move || done.send(read(&place).0.len()).unwrap()));
        assert_eq!(wait.recv_timeout(WAIT_MAX).unwrap() as u64, number + 1);
    }
}

#[test]
fn block_policy_waits_for_full_disk_and_loses_nothing() {
    let directory = new_directory();
    let disk = FaultyDisk::default();
    let trail = start(
        directory.path(),
        &disk,
        WriterOptions { policy: Policy::Block, ring_len: 10_000, ..WriterOptions::default() },
        || (),
    );
    disk.full.store(true, Ordering::SeqCst);
    let done = Arc::new(AtomicUsize::new(0));
    let count = done.clone();
    trail.record(&record(b"/srv/first", SECOND));
    trail.call_when_stored(Box::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    wait_for("a failed write", || trail.counts().failures > 1);
    assert_eq!(done.load(Ordering::SeqCst), 0);
    assert!(!trail.is_healthy());
    disk.full.store(false, Ordering::SeqCst);
    wait_for("the callback", || done.load(Ordering::SeqCst) == 1);
    trail.stop();
    assert_eq!(read(directory.path()), (vec![b"/srv/first".to_vec()], 0));
    assert_eq!(faults(directory.path()), []);
}

#[test]
fn count_policy_continues_and_records_gap() {
    let directory = new_directory();
    let disk = FaultyDisk::default();
    let trail = start(
        directory.path(),
        &disk,
        WriterOptions { policy: Policy::Count, ring_len: 1, ..WriterOptions::default() },
        || (),
    );
    disk.full.store(true, Ordering::SeqCst);
    wait_for("a lost record", || {
        trail.record(&record(b"/srv/x", SECOND));
        trail.counts().failures > 0 && !trail.record(&record(b"/srv/y", SECOND))
    });
    disk.full.store(false, Ordering::SeqCst);
    wait_for("a successful write", || trail.counts().lost > 0 && trail.is_healthy());
    let counts = trail.counts();
    trail.stop();
    let (paths, lost) = read(directory.path());
    assert!(
        lost >= 1 && lost == counts.lost && !paths.is_empty(),
        "{lost} {counts:?} {}",
        paths.len()
    );
    assert_eq!(faults(directory.path()), []);
}

#[test]
fn losses_on_full_disk_share_one_gap_record() {
    let directory = new_directory();
    let disk = FaultyDisk::default();
    let trail = start(
        directory.path(),
        &disk,
        WriterOptions { compress: false, ..WriterOptions::default() },
        || (),
    );
    disk.full.store(true, Ordering::SeqCst);
    let path = [b'x'; 4000];
    let mut counts: Vec<u64> = Vec::new();
    wait_for("repeated losses", || {
        (0..500).for_each(|_| _ = trail.record(&record(&path, SECOND)));
        let lost = trail.counts().lost;
        counts.extend((lost > 0 && counts.last().is_none_or(|last| lost > *last)).then_some(lost));
        counts.len() > 4
    });
    disk.full.store(false, Ordering::SeqCst);
    trail.stop();
    let counts = trail.counts();
    let mut gaps = Vec::new();
    for_each_record(directory.path(), |record| gaps.extend(record.gap));
    assert_eq!(gaps.iter().sum::<u64>(), counts.lost);
    assert!(gaps.len() <= 3, "{gaps:?}");
    reopen(
        directory.path(),
        &disk,
        WriterOptions { compress: false, ..WriterOptions::default() },
        || (),
    )
    .stop();
    assert_eq!(read(directory.path()).1, counts.lost);
}

#[test]
fn halt_policy_calls_back_once() {
    let directory = new_directory();
    let disk = FaultyDisk::default();
    let (halted, reported) = mpsc::channel();
    let trail = start(
        directory.path(),
        &disk,
        WriterOptions { policy: Policy::Halt, ..WriterOptions::default() },
        move || halted.send(()).unwrap(),
    );
    disk.full.store(true, Ordering::SeqCst);
    trail.record(&record(b"/srv/x", SECOND));
    reported.recv_timeout(WAIT_MAX).unwrap();
    wait_for("a retry", || trail.counts().failures > 1);
    disk.full.store(false, Ordering::SeqCst);
    trail.stop();
    assert!(reported.try_recv().is_err());
}

#[test]
fn writer_builds_indexes_for_searches() {
    let directory = new_directory();
    let trail = start(
        directory.path(),
        &FaultyDisk::default(),
        WriterOptions { policy: Policy::Block, ..WriterOptions::default() },
        || (),
    );
    for number in 0..8000u64 {
        let path = format!("/srv/{}", number % 100);
        assert!(trail.record(&record(path.as_bytes(), SECOND + number)));
    }
    wait_for("written records", || trail.counts().written == 8000 && trail.counts().is_healthy);
    wait_for("indexed segments", || {
        let files = segments(directory.path()).unwrap();
        let (last, closed) = files.split_last().unwrap();
        let is_open = std::fs::metadata(&last.path).unwrap().len() < SEGMENT_LEN_MAX;
        is_open
            && !closed.is_empty()
            && closed.iter().all(|file| crate::trail::index::is_indexed(file).unwrap_or(false))
    });
    trail.stop();
    let query = Query { path: vec![b"/srv/7".to_vec()], ..Query::default() };
    let search_path = || {
        let mut hits = 0;
        let searched = search(directory.path(), &query, false, SearchMode::Index, |_| {
            hits += 1;
            true
        });
        (hits, searched.unwrap())
    };
    let (hits, searched) = search_path();
    assert_eq!((hits, searched.built), (80, 0));
    assert!(searched.segments >= 2 && searched.scanned == 1, "{searched:?}");
    let lost = directory.path().join(format!("{:012}.{INDEX_EXTENSION}", 1));
    std::fs::remove_file(&lost).unwrap();
    let log = open(directory.path(), 100 * SECOND);
    let trail = Trail::start(log, Arc::new(SystemDisk), WriterOptions::default(), || ()).unwrap();
    wait_for("a rebuilt index", || lost.exists());
    trail.stop();
    assert_eq!((search_path().0, search_path().1.built), (80, 0));
}

#[test]
fn second_writer_is_refused() {
    let directory = new_trail();
    let log = open(directory.path(), SECOND);
    assert!(matches!(
        Log::open(Arc::new(SystemDisk), directory.path(), options(), SECOND),
        Err(LogError::Busy { .. })
    ));
    log.close(SECOND).unwrap();
    open(directory.path(), 2 * SECOND).close(2 * SECOND).unwrap();
    assert_eq!(faults(directory.path()), []);
}

#[test]
fn seal_is_not_delayed_by_clock_set_back() {
    let directory = new_trail();
    let mut log = open(directory.path(), 1000 * SECOND);
    put(&mut log, 1, 1000 * SECOND);
    log.maintain(900 * SECOND).unwrap();
    let report = verified(directory.path());
    assert_eq!((report.faults, report.unsealed, report.records), (vec![], 0, 1));
    log.close(900 * SECOND).unwrap();
}

#[test]
fn records_dropped_by_failed_sync_are_rewritten() {
    let directory = new_trail();
    let disk = FaultyDisk::default();
    let (log, _) = Log::open(
        Arc::new(disk.clone()),
        directory.path(),
        Options { rotation: Rotation::default(), ..options() },
        SECOND,
    )
    .unwrap();
    let writer_options =
        WriterOptions { durability: Durability::Records(1000), ..WriterOptions::default() };
    let trail = Trail::start(log, Arc::new(disk.clone()), writer_options, || ()).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    for number in 0..100u64 {
        assert!(trail.record(&record(format!("/srv/{number}").as_bytes(), now + number)));
        if number % 10 == 0 {
            wait_for("a written record", || trail.counts().written > number);
        }
    }
    disk.drops_unsynced.store(true, Ordering::SeqCst);
    let (reported, done) = mpsc::channel();
    trail.call_when_stored(Box::new(move || reported.send(()).unwrap()));
    done.recv_timeout(WAIT_MAX).unwrap();
    assert!(trail.counts().failures >= 1);
    trail.stop();
    let (paths, lost) = read(directory.path());
    assert_eq!((paths.len(), lost), (100, 0));
    assert_eq!(faults(directory.path()), []);
}

#[test]
fn loss_on_full_disk_is_reported_at_next_start() {
    let directory = new_directory();
    let disk = FaultyDisk::default();
    let writer_options = WriterOptions { durability: Durability::Each, ..WriterOptions::default() };
    let trail = start(directory.path(), &disk, writer_options.clone(), || ());
    let put = |trail: &Trail, count: u64| {
        (0..count).for_each(|number| assert!(trail.record(&record(b"/srv/x", SECOND + number))))
    };
    put(&trail, 5);
    wait_for("written records", || trail.counts().written == 5 && trail.counts().is_healthy);
    trail.call_when_stored(Box::new(|| ()));
    wait_for("records on the disk", || read(directory.path()).0.len() == 5);
    disk.full.store(true, Ordering::SeqCst);
    put(&trail, 7);
    wait_for("a failed write", || trail.counts().failures > 0);
    put(&trail, 3);
    trail.stop();
    let again = |now| Log::open(Arc::new(disk.clone()), directory.path(), options(), now);
    assert!(again(SECOND).unwrap().0.recovery_error().is_some_and(LogError::is_full));
    disk.full.store(false, Ordering::SeqCst);
    let now = 2 * SECOND;
    drop(again(now).unwrap());
    assert_eq!(read(directory.path()), (vec![b"/srv/x".to_vec(); 5], 10));
    drop(again(now).unwrap());
    assert_eq!(read(directory.path()).1, 10);
    let report = verified(directory.path());
    assert_eq!(report.faults, vec![]);
}
