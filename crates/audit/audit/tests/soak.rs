//! A separate program, because it measures its own memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use vouch_audit::keys::Ratchet;
use vouch_audit::operations::number;
use vouch_audit::record::Class;
use vouch_audit::trail::{
    Disk, KEY_FILE, Log, Options, Policy, Query, Retention, Rotation, SearchMode, SystemDisk,
    Trail, Trust, WriterOptions, create_key, records, search, segments, verify,
};
use vouch_audit::{Flavour, Record};

/// 100 operations per second for eight hours.
const RECORDS: u64 = 8 * 3600 * 100;
const THREADS: u64 = 4;
const SECOND: u64 = 1_000_000_000;
const GROWTH_MAX: u64 = 40 << 20;

fn count() -> u64 {
    std::env::var("VOUCH_SOAK_RECORDS").ok().and_then(|text| text.parse().ok()).unwrap_or(RECORDS)
        / THREADS
        * THREADS
}

fn record_all(trail: &Trail, thread: u64, count: u64, done: &AtomicU64) {
    for at in 0..count {
        let principal = format!("user{}@EXAMPLE.ORG", at * 31 % 997);
        let path = format!("/srv/project-{}/run-{}/file-{}", at % 89, at / 500, at * 7 % 50_000);
        let file = [thread.to_le_bytes(), (at % 50_000).to_le_bytes()].concat();
        let taken = trail.record(&Record {
            time_ns: (1_700_000_000 + at * 8 * 3600 / count) * SECOND,
            class: Class::Operation,
            operation: [number::OPEN, number::READ, number::WRITE, number::CLOSE]
                [(at % 4) as usize],
            flavour: Flavour::Krb5p,
            result: if at % 50 == 0 { 13 } else { 0 },
            principal: principal.as_bytes(),
            uid: Some((at * 31 % 997) as u32),
            gid: Some(100),
            address: Some(std::net::IpAddr::from([10, 0, thread as u8, (at % 250) as u8])),
            export: b"/srv",
            path: path.as_bytes(),
            file: &file,
            read: (at % 4 == 1).then_some(1 << 20),
            connection: Some(thread),
            xid: Some(at as u32),
            ..Record::default()
        });
        assert!(taken, "under `block` nothing is lost");
        done.fetch_add(1, Ordering::Relaxed);
    }
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc is readable");
    text.split_ascii_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .expect("a number")
        * rustix::param::page_size() as u64
}

fn search_until_stopped(directory: &Path, stop: &AtomicBool) -> u64 {
    let query = Query { principal: vec![b"user31@EXAMPLE.ORG".to_vec()], ..Query::default() };
    let mut searches = 0;
    while !stop.load(Ordering::Relaxed) {
        let (mut scratch, mut segment, mut of_thread) =
            (Vec::new(), 0, [None::<u32>; THREADS as usize]);
        let searched = search(directory, &query, false, SearchMode::Index, |hit| {
            let record = hit.record(&mut scratch).expect("a record");
            assert_eq!(record.principal, query.principal[0]);
            assert!(hit.segment >= segment, "segments come in order");
            if segment != 0 && hit.segment > segment + 1 {
                let there = segments(directory)
                    .expect("a directory")
                    .iter()
                    .any(|file| (segment + 1..hit.segment).contains(&file.number));
                assert!(!there, "segments between {segment} and {} were skipped", hit.segment);
                of_thread = [None; THREADS as usize];
            }
            segment = hit.segment;
            let (thread, at) = (
                record.connection.expect("the field is set") as usize,
                record.xid.expect("the field is set"),
            );
            assert!(
                of_thread[thread].is_none_or(|before| at == before + 997),
                "{:?} then {at}",
                of_thread[thread]
            );
            of_thread[thread] = Some(at);
            true
        });
        searched.expect("a search goes on while segments are closed, compressed and removed");
        searches += 1;
        thread::sleep(Duration::from_millis(300));
    }
    searches
}

fn median(samples: &mut [u64]) -> u64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

#[test]
fn eight_hours_of_load_keep_memory_flat_and_trail_complete() {
    let directory = tempfile::tempdir().expect("a directory");
    let key = Ratchet::new([7; 16], &[9; 32]);
    create_key(&SystemDisk, &directory.path().join(KEY_FILE), &key).expect("a key");
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    let rotation = Rotation { len_max: 4 << 20, seal_ns_max: SECOND, ..Rotation::default() };
    let log = Log::open(
        disk.clone(),
        directory.path(),
        Options { rotation, ..Options::default() },
        now_ns(),
    )
    .expect("the trail opens")
    .0;
    let retention = Retention { age_ns_max: None, len_max: Some(24 << 20), age_ns_min: 2 * SECOND };
    let options = WriterOptions {
        policy: Policy::Block,
        ring_len: 1 << 20,
        retention,
        ..WriterOptions::default()
    };
    let trail =
        Trail::start(log, disk, options, || panic!("unexpected halt")).expect("threads start");

    let (done, stop, total) = (AtomicU64::new(0), AtomicBool::new(false), count());
    let mut samples: Vec<(u64, u64)> = Vec::new();
    let searches = thread::scope(|scope| {
        let searching = scope.spawn(|| search_until_stopped(directory.path(), &stop));
        let recording: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let (trail, done) = (&trail, &done);
                    move || record_all(trail, thread, total / THREADS, done)
                })
            })
            .collect();
        while recording.iter().any(|thread| !thread.is_finished()) {
            samples.push((done.load(Ordering::Relaxed), resident()));
            thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        searching.join().expect("searches succeed")
    });
    let until = Instant::now() + Duration::from_secs(60);
    while segments(directory.path())
        .expect("a directory")
        .first()
        .is_some_and(|first| first.number == 1)
        && Instant::now() < until
    {
        thread::sleep(Duration::from_millis(20));
    }
    trail.stop();
    let counts = trail.counts();
    assert_eq!((counts.lost, counts.failures, counts.waiting_len), (0, 0, 0));

    let of_quarter = |quarter: u64| {
        samples
            .iter()
            .filter(|(done, _)| done * 4 / total == quarter)
            .map(|(_, resident)| *resident)
            .collect::<Vec<_>>()
    };
    let (mut early, mut late) = (of_quarter(1), of_quarter(3));
    assert!(early.len() > 10 && late.len() > 10, "{} and {} samples", early.len(), late.len());
    let (early, late) = (median(&mut early), median(&mut late));
    assert!(
        late <= early + GROWTH_MAX,
        "{early} bytes resident in the second quarter, {late} in the last"
    );

    let files = segments(directory.path()).expect("a directory");
    let (first, last) =
        (files.first().expect("segments").number, files.last().expect("segments").number);
    let report = verify(
        directory.path(),
        &Trust { public: Some(key.public()), ..Trust::default() },
        |_, _| {},
    )
    .expect("the trail is readable");
    assert_eq!((report.faults, report.unsealed), (Vec::new(), 0));
    let (mut seq_before, mut acts) = (None::<u64>, 0);
    let mut of_thread = [None::<u32>; THREADS as usize];
    records(directory.path(), 1, |record| {
        assert!(
            seq_before.is_none_or(|before| record.seq == before + 1),
            "{seq_before:?}, {}",
            record.seq
        );
        seq_before = Some(record.seq);
        match (record.class, record.connection, record.xid) {
            (Class::Operation, Some(thread), Some(at)) => {
                let before = of_thread[thread as usize].replace(at);
                assert!(before.is_none_or(|before| at == before + 1), "{before:?}, {at}");
            }
            _ => acts += 1,
        }
    })
    .expect("the trail is readable");
    assert_eq!(
        of_thread,
        [Some((total / THREADS - 1) as u32); THREADS as usize],
        "the last record of each thread is present"
    );
    assert!(first > 1 && acts > 0, "retention removed segments and recorded it");
    assert!(searches > 1);
    println!(
        "{total} records in {last} segments, {} left; {searches} searches meanwhile; {} MiB resident, {} at the end",
        files.len(),
        early >> 20,
        late >> 20
    );
}

fn now_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970")
        .as_nanos() as u64
}
