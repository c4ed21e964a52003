use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::faulty_disk::FaultyDisk;
use super::writer::{record, start, wait_for};
use super::*;
use crate::record::Act;
use crate::trail::index::{build_index_while, is_indexed};

fn recorded_removals(directory: &Path) -> Vec<String> {
    let mut reported = Vec::new();
    for_each_record(directory, |record| {
        if (record.class, record.operation) == (Class::Administrative, Act::Pruned as u16) {
            reported.push(String::from_utf8_lossy(record.detail).into_owned());
        }
    });
    reported
}

#[test]
fn removal_is_recorded_first_even_if_other_records_are_lost() {
    let directory = new_directory();
    let disk = FaultyDisk::default();
    let options = WriterOptions {
        policy: Policy::Count,
        durability: Durability::System,
        compress: false,
        ..WriterOptions::default()
    };
    let trail = start(directory.path(), &disk, options, || ());
    disk.full.store(true, Ordering::SeqCst);
    let path = [b'x'; 4000];
    wait_for("lost records", || {
        (0..500).for_each(|_| _ = trail.record(&record(&path, SECOND)));
        trail.counts().lost > 0
    });
    std::thread::scope(|scope| {
        let reported = scope.spawn(|| trail.record_removal(7));
        let failures = trail.counts().failures;
        wait_for("a retry", || trail.counts().failures > failures + 1);
        assert!(!reported.is_finished(), "nothing was written");
        disk.full.store(false, Ordering::SeqCst);
        assert!(reported.join().unwrap());
    });
    assert_eq!(
        recorded_removals(directory.path()),
        ["segments are removed up to 7; their seals are kept"]
    );
    trail.stop();
    assert!(!trail.record_removal(8), "the writer has stopped");
}

#[test]
fn interrupted_maintenance_leaves_segment_unchanged() {
    let directory = new_trail();
    let rotation = Rotation { len_max: 1 << 30, age_ns_max: u64::MAX, seal_ns_max: u64::MAX };
    let mut log = Log::open(
        Arc::new(SystemDisk),
        directory.path(),
        Options { rotation, ..options() },
        SECOND,
    )
    .unwrap()
    .0;
    (0..20_000).for_each(|number| _ = put(&mut log, number, SECOND + number));
    log.close(2 * SECOND).unwrap();
    let file = segments(directory.path()).unwrap().remove(0);
    for steps in 0..3 {
        let left: Cell<u32> = Cell::new(steps);
        let is_wanted = || left.replace(left.get().saturating_sub(1)) > 0;
        let interrupted = |error: std::io::Error| error.kind() == std::io::ErrorKind::Interrupted;
        assert!(
            build_index_while(&file, &is_wanted).is_err_and(interrupted)
                && !is_indexed(&file).unwrap()
        );
        left.set(steps);
        assert!(compress(&SystemDisk, &file, &is_wanted).is_err_and(interrupted));
    }
    assert_eq!(segments(directory.path()).unwrap(), std::slice::from_ref(&file));
    build_index_while(&file, &|| true).unwrap();
    compress(&SystemDisk, &file, &|| true).unwrap();
    assert_eq!(faults(directory.path()), []);
}

pub(super) fn record_removal(directory: &Path, last: u64, now_ns: u64) -> bool {
    let mut log = open(directory, now_ns);
    let detail = format!("{PRUNED_PREFIX}{last}; their seals are kept");
    let (class, operation) = (Class::Administrative, Act::Pruned as u16);
    log.append_record(&Record {
        time_ns: now_ns,
        class,
        operation,
        detail: detail.as_bytes(),
        ..Record::default()
    });
    log.close(now_ns).is_ok()
}

fn remove(directory: &Path, retention: &Retention, now_ns: u64) -> u64 {
    prune(
        &SystemDisk,
        directory,
        retention,
        now_ns,
        |_| true,
        |last| record_removal(directory, last, now_ns),
    )
    .unwrap()
}

#[test]
fn verification_during_retention_finds_no_fault() {
    for at in 0..4 {
        let directory = written_trail(100);
        let all = Retention { len_max: Some(1), ..Retention::default() };
        let mut removed = 0;
        let report = verify(directory.path(), &trust(), |index, _| {
            if index == at {
                removed = remove(directory.path(), &all, 200 * SECOND);
            }
        })
        .unwrap();
        assert!(removed > at, "{removed}");
        assert_eq!(report.faults, [], "removed before segment {at} was read");
        assert!(
            report.notes.iter().any(|note| note.contains("removed by retention")),
            "{:?}",
            report.notes
        );
        let last = segments(directory.path()).unwrap().pop().unwrap();
        let report =
            verify(directory.path(), &trust(), |_, _| _ = std::fs::remove_file(&last.path))
                .unwrap();
        assert!(!report.faults.is_empty());
    }
}

#[test]
fn seals_of_removed_segments_are_appended_once_despite_crash() {
    let directory = written_trail(100);
    let files = segments(directory.path()).unwrap();
    let seals_file = directory.path().join(REMOVED_SEALS_FILE);
    let age =
        |seconds: u64| Retention { age_ns_max: Some(seconds * SECOND), ..Retention::default() };
    let first = remove(directory.path(), &age(180), 200 * SECOND);
    let before = std::fs::read(&seals_file).unwrap();
    assert!(first > 0 && !before.is_empty());
    let left: Vec<_> = files[first as usize..]
        .iter()
        .map(|file| (file, std::fs::read(&file.path).unwrap()))
        .collect();
    let more = remove(directory.path(), &age(120), 200 * SECOND);
    assert!(more > 1);
    let whole = std::fs::read(&seals_file).unwrap();
    assert!(whole.starts_with(&before), "seals are appended");
    let frame = crate::frame::OVERHEAD + crate::seal::SEAL_LENS[0];
    for written in [0, 1, frame, frame + 1, whole.len() - before.len()] {
        for removed in 0..2 {
            left[removed..more as usize]
                .iter()
                .for_each(|(file, bytes)| std::fs::write(&file.path, bytes).unwrap());
            let is_whole = removed > 0 || before.len() + written == whole.len();
            std::fs::write(
                &seals_file,
                if is_whole { &whole } else { &whole[..before.len() + written] },
            )
            .unwrap();
            assert_eq!(remove(directory.path(), &age(120), 200 * SECOND), more - removed as u64);
            assert_eq!(
                std::fs::read(&seals_file).unwrap(),
                whole,
                "{written} bytes were written, {removed} removed"
            );
        }
    }
    assert_eq!(faults(directory.path()), []);
}

#[test]
fn checkpoint_is_as_readable_as_segments() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = written_trail(10);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let segment = segments(directory.path()).unwrap().remove(0);
    assert_eq!(mode(&directory.path().join(CHECKPOINT_FILE)), mode(&segment.path));
    assert_eq!(mode(&directory.path().join(KEY_FILE)), 0o600);
}
