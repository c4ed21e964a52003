mod faulty_disk;
mod full_disk;
mod kill;
mod lost_count;
mod maintenance;
mod pairs;
mod power_cut;
mod power_cut_threads;
mod proof;
mod retention;
mod search;
mod tamper;
mod writer;

use std::path::Path;
use std::sync::Arc;

use super::compress::compress;
use super::files::{REMOVED_SEALS_FILE, TORN_EXTENSION};
use super::index::{INDEX_EXTENSION, build_index};
use super::log::LOST_COUNT_FILE;
use super::prune::{PRUNED_PREFIX, prune};
use super::*;
use crate::keys::Ratchet;
use crate::record::{Class, Record};

pub(super) const SECOND: u64 = 1_000_000_000;

pub(super) fn key() -> Ratchet {
    Ratchet::new([7; 16], &[9; 32])
}

pub(super) fn trust() -> Trust {
    Trust { public: Some(key().public()), ..Trust::default() }
}

pub(super) fn create_trail(directory: &Path) {
    create_key(&SystemDisk, &directory.join(KEY_FILE), &key()).unwrap();
}

pub(super) fn options() -> Options {
    Options {
        rotation: Rotation { len_max: 12_000, age_ns_max: 1000 * SECOND, seal_ns_max: 5 * SECOND },
        boot: [1; 16],
        key: None,
    }
}

pub(super) fn open(directory: &Path, now_ns: u64) -> Log {
    Log::open(Arc::new(SystemDisk), directory, options(), now_ns).unwrap().0
}

pub(super) fn put(log: &mut Log, number: u64, now_ns: u64) -> u64 {
    let path = format!("/srv/data/file-{number}");
    let record = Record {
        time_ns: now_ns,
        class: Class::Operation,
        operation: 9,
        principal: b"alice@EXAMPLE.ORG",
        uid: Some(1000),
        export: b"/srv/data",
        path: path.as_bytes(),
        ..Record::default()
    };
    log.append_record(&record)
}

pub(super) fn write(directory: &Path, count: u64) {
    create_trail(directory);
    let mut log = open(directory, SECOND);
    for number in 1..=count {
        let now = number * SECOND;
        assert_eq!(put(&mut log, number, now), number);
        log.maintain(now).unwrap();
    }
    log.close(count * SECOND).unwrap();
}

/// In memory if possible: ext4 searches long for a number for each file that follows a deleted one.
pub(super) fn new_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub(super) fn new_trail() -> tempfile::TempDir {
    let directory = new_directory();
    create_trail(directory.path());
    directory
}

pub(super) fn written_trail(count: u64) -> tempfile::TempDir {
    let directory = new_directory();
    write(directory.path(), count);
    directory
}

pub(super) fn verified(directory: impl AsRef<Path>) -> Report {
    verify(directory.as_ref(), &trust(), |_, _| {}).unwrap()
}

pub(super) fn faults(directory: impl AsRef<Path>) -> Vec<Fault> {
    verified(directory).faults
}

pub(super) fn assert_sealed(directory: impl AsRef<Path>, state: &str) {
    let report = verified(directory);
    assert_eq!((report.faults, report.unsealed), (vec![], 0), "{state}");
}

pub(super) fn for_each_record(directory: &Path, see: impl FnMut(&Record<'_>)) {
    records(directory, 1, see).unwrap();
}

#[test]
fn written_trail_verifies_and_reads_back() {
    let directory = written_trail(100);
    let report = verified(directory.path());
    assert_eq!(report.faults, vec![]);
    assert!(
        matches!(&report.notes[..], [note] if note.starts_with("nothing outside this directory")),
        "{:?}",
        report.notes
    );
    let elsewhere = new_directory();
    let key = elsewhere.path().join(KEY_FILE);
    std::fs::copy(directory.path().join(KEY_FILE), &key).unwrap();
    let report = verify(directory.path(), &Trust { key: Some(key), ..trust() }, |_, _| {}).unwrap();
    assert_eq!((report.faults, report.notes), (vec![], vec![]));
    assert_eq!((report.records, report.unsealed, report.span), (100, 0, Some((1, 100))));
    assert!(report.segments > 3);
    let mut seen = 0;
    for_each_record(directory.path(), |record| {
        seen += 1;
        assert_eq!((record.seq, record.path), (seen, format!("/srv/data/file-{seen}").as_bytes()));
    });
    assert_eq!(seen, 100);
}

#[test]
fn trail_continues_after_close_and_after_kill() {
    let directory = written_trail(3);
    let mut log = open(directory.path(), 10 * SECOND);
    assert_eq!(put(&mut log, 4, 10 * SECOND), 4);
    log.sync().unwrap();
    drop(log);
    let (mut log, opened) =
        Log::open(Arc::new(SystemDisk), directory.path(), options(), 20 * SECOND).unwrap();
    assert_eq!(
        opened,
        Recovery { was_unclosed: true, quarantined: vec![], unsealed: Some((4, 4)) }
    );
    assert_eq!(put(&mut log, 6, 20 * SECOND), 6);
    log.close(21 * SECOND).unwrap();
    let report = verified(directory.path());
    assert_eq!((report.faults, report.records), (vec![], 6));
}

#[test]
fn compressed_segments_verify_and_return_single_frames() {
    let directory = new_trail();
    let wide =
        Options { rotation: Rotation { len_max: 1 << 20, ..Rotation::default() }, ..options() };
    let mut log = Log::open(Arc::new(SystemDisk), directory.path(), wide, SECOND).unwrap().0;
    for number in 1..=20_000 {
        put(&mut log, number, SECOND + number * 1_234_567);
        log.maintain(SECOND + number * 1_234_567).unwrap();
    }
    log.close(100 * SECOND).unwrap();
    let mut frames = Vec::new();
    entries(directory.path(), 1, |entry| {
        frames.push((entry.segment, entry.offset, entry.body));
        true
    })
    .unwrap();
    let mut len = 0;
    for segment in segments(directory.path()).unwrap() {
        let compressed = compress(&SystemDisk, &segment, &|| true).unwrap();
        len += std::fs::metadata(&compressed.path).unwrap().len();
    }
    let files = segments(directory.path()).unwrap();
    assert!(files.iter().all(|file| file.is_compressed));
    assert!(len / 20_000 < 60, "{} bytes a record", len / 20_000);
    for (number, offset, body) in frames.iter().step_by(997) {
        let segment = Segment::open(&files[*number as usize - 1]).unwrap();
        assert_eq!(segment.frame_at(*offset).unwrap().1, *body);
    }
    let report = verified(directory.path());
    assert_eq!((report.faults, report.records), (vec![], 20_000));
}

#[test]
fn entries_reads_segments_compressed_after_listing() {
    let directory = written_trail(100);
    let (mut records, mut is_compressed) = (0, false);
    entries(directory.path(), 1, |entry| {
        if !is_compressed {
            segments(directory.path())
                .unwrap()
                .iter()
                .for_each(|file| drop(compress(&SystemDisk, file, &|| true).unwrap()));
            is_compressed = true;
        }
        records += u64::from(entry.kind == crate::frame::Kind::Record);
        true
    })
    .unwrap();
    assert_eq!(records, 100);
}

#[test]
fn seal_replaces_key_and_erases_old_one() {
    let directory = new_trail();
    let path = directory.path().join(KEY_FILE);
    let mut keys = vec![std::fs::read(&path).unwrap()];
    let mut log = open(directory.path(), SECOND);
    for number in 1..=5 {
        put(&mut log, number, SECOND);
        log.rotate(SECOND).unwrap();
        keys.push(std::fs::read(&path).unwrap());
    }
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(crate::keys::Ratchet::decode(key).unwrap().epoch(), index as u64);
    }
    let last = keys.pop().unwrap();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for key in &keys {
            let seed = &key[32..64];
            assert!(!bytes.windows(32).any(|window| window == seed), "an old seed is still there");
        }
    }
    assert_eq!(std::fs::read(&path).unwrap(), last);
}
