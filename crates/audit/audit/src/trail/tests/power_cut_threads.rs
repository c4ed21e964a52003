//! Under `block`, each acknowledged record is in the trail exactly once after a power cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::power_cut::PowerDisk;
use super::writer::{record, wait_for};
use super::*;

const CUTS: u64 = 1000;
const THREADS: u64 = 3;
const OPERATIONS: u64 = 40;
const WAIT_MAX: Duration = Duration::from_secs(60);

type Acknowledged = Arc<Mutex<Vec<u64>>>;

fn operate(
    trail: &Trail,
    disk: &PowerDisk,
    mut random: ChaCha8Rng,
    numbers: &AtomicU64,
    acknowledged: &Acknowledged,
) {
    for _ in 0..OPERATIONS {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let path = format!("/srv/data/file-{number}");
        let taken = trail.record(&Record {
            time_ns: now_ns(),
            class: Class::Operation,
            operation: 38,
            path: path.as_bytes(),
            ..Record::default()
        });
        if !taken {
            return;
        }
        let all = acknowledged.clone();
        trail.call_when_stored(Box::new(move || all.lock().push(number)));
        if random.next_u32().is_multiple_of(4) {
            let began = Instant::now();
            while !acknowledged.lock().contains(&number) {
                if disk.is_cut() {
                    return;
                }
                assert!(began.elapsed() < WAIT_MAX, "no acknowledgement");
                thread::yield_now();
            }
        }
    }
}

fn run_with_power_cuts(seed: u64) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let directory = new_directory();
    let disk = PowerDisk::new(directory.path());
    create_key(&disk, &directory.path().join(KEY_FILE), &key()).unwrap();
    disk.publish();
    let (numbers, acknowledged, mut cuts) = (AtomicU64::new(0), Acknowledged::default(), 0);
    for life in 0..2u64 {
        disk.cut_after(u64::from(random.next_u32() % 200));
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        if let Ok((log, _)) = Log::open(shared.clone(), directory.path(), options(), now_ns()) {
            let options = WriterOptions {
                policy: Policy::Block,
                durability: Durability::Each,
                ring_len: 2000,
                compress: false,
                ..WriterOptions::default()
            };
            let trail = Trail::start(log, shared, options, || {}).unwrap();
            thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let random = ChaCha8Rng::seed_from_u64(seed << 8 | life << 4 | thread);
                        let (trail, disk, numbers, acknowledged) =
                            (&trail, &disk, &numbers, &acknowledged);
                        scope.spawn(move || operate(trail, disk, random, numbers, acknowledged))
                    })
                    .collect();
                while threads.iter().any(|thread| !thread.is_finished()) && !disk.is_cut() {
                    thread::sleep(Duration::from_micros(200));
                }
                trail.stop();
            });
        }
        cuts += u64::from(disk.is_cut());
        disk.cut(&mut random);
    }
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let (log, _) = Log::open(shared, directory.path(), options(), now_ns())
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    log.close(now_ns()).unwrap();
    disk.clear();
    disk.publish();
    let report = verified(directory.path());
    assert_eq!(report.faults, [], "seed {seed}");
    let mut found = BTreeMap::<Vec<u8>, u64>::new();
    let mut seq_before = 0;
    for_each_record(directory.path(), |record| {
        assert_eq!(record.seq, seq_before + 1, "seed {seed}");
        seq_before = record.seq;
        *found.entry(record.path.to_vec()).or_default() += 1;
    });
    for number in acknowledged.lock().iter() {
        let path = format!("/srv/data/file-{number}").into_bytes();
        assert_eq!(found.get(&path), Some(&1), "seed {seed}: operation {number}");
    }
    cuts
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

#[test]
fn block_policy_loses_nothing_in_1000_power_cuts() {
    let (seeds, cuts) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while cuts.load(Ordering::Relaxed) < CUTS {
                    let seed = seeds.fetch_add(1, Ordering::Relaxed);
                    assert!(seed < 4 * CUTS, "too few power cuts");
                    cuts.fetch_add(run_with_power_cuts(seed), Ordering::Relaxed);
                }
            });
        }
    });
}

#[test]
fn seal_rewrites_records_after_failed_sync() {
    let directory = new_directory();
    let disk = PowerDisk::new(directory.path());
    create_key(&disk, &directory.path().join(KEY_FILE), &key()).unwrap();
    disk.publish();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let rotation =
        Rotation { len_max: 1 << 20, age_ns_max: 1000 * SECOND, seal_ns_max: SECOND / 5 };
    let log =
        Log::open(shared.clone(), directory.path(), Options { rotation, ..options() }, now_ns())
            .unwrap()
            .0;
    let trail = Trail::start(
        log,
        shared.clone(),
        WriterOptions {
            durability: Durability::System,
            compress: false,
            ..WriterOptions::default()
        },
        || {},
    )
    .unwrap();
    disk.set_unsyncable(Some(SegmentFile::open(directory.path(), 1).path));
    (1..=5).for_each(|number| {
        assert!(trail.record(&record(format!("/srv/{number}").as_bytes(), now_ns())))
    });
    wait_for("a failed seal", || trail.counts().failures > 0);
    disk.set_unsyncable(None);
    wait_for("a new key", || {
        read_key(&directory.path().join(KEY_FILE)).is_ok_and(|key| key.epoch() > 0)
    });
    disk.cut_after(0);
    trail.stop();
    disk.cut(&mut ChaCha8Rng::seed_from_u64(1));
    Log::open(shared, directory.path(), options(), now_ns()).unwrap().0.close(now_ns()).unwrap();
    disk.clear();
    disk.publish();
    let (report, (paths, _)) = (verified(directory.path()), super::writer::read(directory.path()));
    assert_eq!((report.faults, paths.len()), (vec![], 5));
}
