//! What is done with closed segments: that it ends with the trail, that nothing goes without its record.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::keeping::{FaultyDisk, record, start, until};
use super::*;
use crate::record::Act;
use crate::trail::compress::compress_while;
use crate::trail::index::{build_index_while, is_indexed};

/// Segments that the trail's records say are removed.
fn told_removed(directory: &Path) -> Vec<String> {
    let mut told = Vec::new();
    entries(directory, 1, |entry| {
        let mut scratch = Vec::new();
        let record = Record::decode(&entry.body, &mut scratch).ok().filter(|_| entry.kind == crate::frame::Kind::Record);
        let record = record.filter(|record| (record.class, record.operation) == (Class::Administrative, Act::Pruned as u16));
        told.extend(record.map(|record| String::from_utf8_lossy(record.detail).into_owned()));
        true
    })
    .unwrap();
    told
}

#[test]
fn a_removal_is_on_record_before_it_is_done_also_where_other_records_are_lost() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let keeping = Keeping { policy: Policy::Count, durable: Durable::System, compress: false, ..Keeping::default() };
    let trail = start(directory.path(), &disk, keeping, || ());
    disk.full.store(true, Ordering::SeqCst);
    let path = [b'x'; 4000];
    // Until nothing more is kept in memory.
    until("records are lost", || {
        (0..500).for_each(|_| _ = trail.record(&record(&path, SECOND)));
        trail.counts().lost > 0
    });
    std::thread::scope(|scope| {
        let told = scope.spawn(|| trail.tell_removal(7));
        let failures = trail.counts().failures;
        until("the disk is tried again", || trail.counts().failures > failures + 1);
        assert!(!told.is_finished(), "the disk has taken nothing");
        disk.full.store(false, Ordering::SeqCst);
        assert!(told.join().unwrap());
    });
    assert_eq!(told_removed(directory.path()), ["segments are removed up to 7; their seals are kept"]);
    trail.stop();
    assert!(!trail.tell_removal(8), "nobody writes it");
}

#[test]
fn what_is_done_with_a_segment_ends_when_the_trail_does_and_leaves_it_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    begin(directory.path());
    let rotation = Rotation { len_max: 1 << 30, age_ns_max: u64::MAX, seal_ns_max: u64::MAX };
    let mut log = Log::open(Arc::new(SystemDisk), directory.path(), Options { rotation, ..options() }, SECOND).unwrap().0;
    (0..20_000).for_each(|number| _ = put(&mut log, number, SECOND + number));
    log.close(2 * SECOND).unwrap();
    let file = segments(directory.path()).unwrap().remove(0);
    // Whenever that is.
    for steps in 0..3 {
        let left: Cell<u32> = Cell::new(steps);
        let is_wanted = || left.replace(left.get().saturating_sub(1)) > 0;
        let interrupted = |error: std::io::Error| error.kind() == std::io::ErrorKind::Interrupted;
        assert!(build_index_while(&file, &is_wanted).is_err_and(interrupted) && !is_indexed(&file).unwrap());
        left.set(steps);
        assert!(compress_while(&SystemDisk, &file, &is_wanted).is_err_and(interrupted));
    }
    assert_eq!(segments(directory.path()).unwrap(), std::slice::from_ref(&file));
    build_index_while(&file, &|| true).unwrap();
    compress_while(&SystemDisk, &file, &|| true).unwrap();
    assert_eq!(verify(directory.path(), &trust(), |_, _| {}).unwrap().faults, []);
}
