use std::sync::atomic::Ordering;

use super::faulty_disk::FaultyDisk;
use super::writer::{read, record, reopen, wait_for};
use super::*;

fn write_unclosed(directory: &Path) {
    create_trail(directory);
    let mut log = open(directory, SECOND);
    (1..=3).for_each(|number| _ = put(&mut log, number, SECOND));
    log.sync().unwrap();
}

fn append(path: &Path, bytes: &[u8]) {
    let mut whole = std::fs::read(path).unwrap_or_default();
    whole.extend_from_slice(bytes);
    std::fs::write(path, whole).unwrap();
}

fn write_torn(directory: &Path, segment: u64) {
    write_unclosed(directory);
    append(&SegmentFile::open(directory, segment).path, TORN_BYTES);
}

type State<'a> = (&'a str, &'a dyn Fn(&Path), usize, u64);

const TORN_BYTES: &[u8] = b"not a frame";

#[test]
fn start_on_full_disk_continues_once_there_is_room() {
    let states: [State<'_>; 6] = [
        ("new", &|directory| create_trail(directory), 0, 0),
        ("closed", &|directory| write(directory, 3), 3, 0),
        ("killed", &write_unclosed, 3, 1),
        ("torn", &|directory| write_torn(directory, 1), 3, 1),
        ("no header", &|directory| write_torn(directory, 2), 3, 1),
        ("key behind seal", &write_with_outdated_key, 3, 1),
    ];
    for (state, make, count, first_lost) in states {
        let directory = new_directory();
        let directory = directory.path();
        make(directory);
        let disk = FaultyDisk::default();
        disk.full.store(true, Ordering::SeqCst);
        reopen(directory, &disk, WriterOptions::default(), || ()).stop();
        let trail = reopen(directory, &disk, WriterOptions::default(), || ());
        assert!(!trail.is_healthy() && trail.record(&record(b"/srv/x", SECOND)), "{state}");
        let failures = trail.counts().failures;
        wait_for("a retry", || trail.counts().failures > failures + 1);
        assert!(!trail.is_healthy(), "{state}");
        disk.full.store(false, Ordering::SeqCst);
        wait_for("a successful write", || trail.is_healthy());
        trail.stop();
        assert_sealed(directory, state);
        let (paths, lost) = read(directory);
        assert_eq!(
            (paths.len(), paths.last().map(Vec::as_slice)),
            (count + 1, Some(&b"/srv/x"[..])),
            "{state}"
        );
        assert_eq!(lost, first_lost, "{state}");
        let torn: Vec<_> = [1, 2]
            .iter()
            .filter_map(|number| {
                std::fs::read(
                    SegmentFile::open(directory, *number).path.with_extension(TORN_EXTENSION),
                )
                .ok()
            })
            .collect();
        let expected: &[&[u8]] =
            if state == "torn" || state == "no header" { &[TORN_BYTES] } else { &[] };
        assert_eq!(torn, expected, "{state}");
        assert!(directory.join(LOST_COUNT_FILE).exists(), "{state}");
    }
}

#[test]
fn loss_is_reported_despite_intermediate_start_on_full_disk() {
    let directory = new_directory();
    let disk = FaultyDisk::default();
    create_trail(directory.path());
    let trail = reopen(
        directory.path(),
        &disk,
        WriterOptions { ring_len: 1, ..WriterOptions::default() },
        || (),
    );
    wait_for("the first write", || {
        trail.counts().failures == 0 && directory.path().join(LOST_COUNT_FILE).exists()
    });
    disk.full.store(true, Ordering::SeqCst);
    wait_for("lost records", || {
        trail.record(&record(b"/srv/x", SECOND));
        trail.counts().lost > 5
    });
    trail.stop();
    let lost = trail.counts().lost;
    for _ in 0..2 {
        let again = reopen(directory.path(), &disk, WriterOptions::default(), || ());
        let failures = again.counts().failures;
        wait_for("a retry", || again.counts().failures > failures + 1);
        assert!(!again.is_healthy());
        again.stop();
    }
    disk.full.store(false, Ordering::SeqCst);
    reopen(directory.path(), &disk, WriterOptions::default(), || ()).stop();
    let (paths, reported) = read(directory.path());
    assert!(reported >= lost, "{reported} of {lost}, {} are present", paths.len());
    reopen(directory.path(), &disk, WriterOptions::default(), || ()).stop();
    assert_eq!(read(directory.path()).1, reported, "reported twice");
    assert_eq!(faults(directory.path()), vec![]);
}

#[test]
fn recovery_records_are_synced_before_callbacks_run() {
    let directory = written_trail(3);
    std::fs::write(
        directory.path().join(LOST_COUNT_FILE),
        crate::trail::LostCount { unnumbered: 5, ..Default::default() }.encode(),
    )
    .unwrap();
    let disk = FaultyDisk::default();
    disk.full.store(true, Ordering::SeqCst);
    let options = Options {
        rotation: Rotation { seal_ns_max: 1 << 62, age_ns_max: 1 << 62, ..Rotation::default() },
        ..options()
    };
    let log = Log::open(Arc::new(disk.clone()), directory.path(), options, SECOND).unwrap().0;
    assert!(log.recovery_error().is_some());
    let options =
        WriterOptions { durability: crate::trail::Durability::Each, ..WriterOptions::default() };
    let trail = Trail::start(log, Arc::new(disk.clone()), options, || ()).unwrap();
    disk.drops_unsynced.store(true, Ordering::SeqCst);
    disk.full.store(false, Ordering::SeqCst);
    let (reported, kept) = std::sync::mpsc::channel();
    let drops_unsynced = disk.drops_unsynced.clone();
    trail.call_when_stored(Box::new(move || {
        reported.send(!drops_unsynced.load(Ordering::SeqCst)).unwrap()
    }));
    assert!(kept.recv().unwrap(), "nothing was synced");
    trail.stop();
    assert_eq!(read(directory.path()).1, 5);
}

pub(super) fn count_recovery_records(directory: &Path, state: &str) -> usize {
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()).collect();
    files.retain(|file| {
        file.path().extension().is_some_and(|extension| extension == TORN_EXTENSION)
    });
    let mut reported = Vec::new();
    for_each_record(directory, |record| {
        if record.operation == crate::record::Act::Recovered as u16 {
            reported.push(String::from_utf8(record.detail.to_vec()).unwrap());
        }
    });
    let after = |detail: &str| detail.rsplit_once("; ").unwrap().1.to_owned();
    let len: u64 = reported
        .iter()
        .map(|detail| after(detail).split(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(
        len,
        files.iter().map(|file| file.metadata().unwrap().len()).sum::<u64>(),
        "{state}: {reported:?}, {files:?}"
    );
    let names = reported.iter().filter_map(|detail| Some(detail.split_once(": ")?.1.to_owned()));
    let mut names: Vec<_> =
        names.flat_map(|names| names.split(", ").map(str::to_owned).collect::<Vec<_>>()).collect();
    names.sort();
    let mut there: Vec<_> =
        files.iter().map(|file| file.file_name().into_string().unwrap()).collect();
    there.sort();
    assert_eq!(names, there, "{state}: {reported:?}");
    reported.len()
}

#[test]
fn torn_bytes_of_each_crash_are_quarantined_and_reported() {
    let directory = new_directory();
    write_unclosed(directory.path());
    let first = SegmentFile::open(directory.path(), 1).path;
    let left = std::fs::read(&first).unwrap();
    for bytes in [&b"first"[..], b"first", b"second", b"third"] {
        let _ = std::fs::remove_file(SegmentFile::open(directory.path(), 2).path);
        std::fs::write(&first, [&left, bytes].concat()).unwrap();
        std::fs::remove_file(directory.path().join(KEY_FILE)).unwrap();
        create_trail(directory.path());
        drop(Log::open(Arc::new(SystemDisk), directory.path(), options(), SECOND).unwrap());
    }
    let kept: Vec<_> = ["torn", "2.torn", "3.torn"]
        .iter()
        .map(|end| std::fs::read(first.with_extension(end)).unwrap_or_default())
        .collect();
    assert_eq!(kept, [&b"first"[..], b"second", b"third"]);
    assert!(!first.with_extension("4.torn").exists());
    assert_eq!(count_recovery_records(directory.path(), "last start"), 1);
}

#[test]
fn torn_bytes_are_reported_once_despite_full_disk_and_kill() {
    let states: [(&str, bool, u64, &[u8]); 4] = [
        ("torn end", false, 1, TORN_BYTES),
        ("empty segment", true, 2, b""),
        ("segment without header", true, 2, TORN_BYTES),
        ("segment without header after an unclosed one", false, 2, TORN_BYTES),
    ];
    for (state, is_closed, segment, bytes) in states {
        let mut writes = 0;
        loop {
            let directory = new_directory();
            let directory = directory.path();
            let state = format!("{state}, after {writes}");
            if is_closed {
                write(directory, 3)
            } else {
                write_unclosed(directory)
            }
            append(&SegmentFile::open(directory, segment).path, bytes);
            let disk = FaultyDisk::default();
            let mut has_room = false;
            for writes_left in [writes, writes / 2] {
                *disk.writes_left.lock().unwrap() = Some(writes_left);
                has_room |= Log::open(Arc::new(disk.clone()), directory, options(), 2 * SECOND)
                    .unwrap()
                    .0
                    .recovery_error()
                    .is_none();
            }
            open(directory, 3 * SECOND).close(3 * SECOND).unwrap();
            let reported = count_recovery_records(directory, &state);
            assert!(reported > 0, "{state}");
            open(directory, 4 * SECOND).close(4 * SECOND).unwrap();
            assert_eq!(
                count_recovery_records(directory, &state),
                reported,
                "{state}: reported again"
            );
            assert_sealed(directory, &state.to_string());
            if has_room {
                break;
            }
            writes += 1;
        }
        assert!(writes >= 2, "{state}: {writes}");
    }
}

#[test]
fn starts_on_full_disk_leave_a_single_empty_file() {
    let directory = new_directory();
    let directory = directory.path();
    write(directory, 3);
    for _ in 0..5 {
        let disk = FaultyDisk::default();
        *disk.writes_left.lock().unwrap() = Some(3);
        assert!(
            Log::open(Arc::new(disk), directory, options(), 2 * SECOND)
                .unwrap()
                .0
                .recovery_error()
                .is_some()
        );
        assert_eq!(std::fs::metadata(SegmentFile::open(directory, 2).path).unwrap().len(), 0);
    }
    open(directory, 3 * SECOND).close(3 * SECOND).unwrap();
    assert_eq!(count_recovery_records(directory, "no room"), 1);
    assert!(
        directory.join(format!("000000000002.{TORN_EXTENSION}")).exists()
            && !directory.join(format!("000000000002.2.{TORN_EXTENSION}")).exists()
    );
}

#[test]
fn unsealed_records_are_reported_despite_full_disk_and_kill() {
    let mut writes = 0;
    loop {
        let directory = new_directory();
        write_unclosed(directory.path());
        let disk = FaultyDisk::default();
        *disk.writes_left.lock().unwrap() = Some(writes);
        let (log, _) = Log::open(Arc::new(disk), directory.path(), options(), 2 * SECOND).unwrap();
        let had_room = log.recovery_error().is_none();
        drop(log);
        open(directory.path(), 3 * SECOND).close(3 * SECOND).unwrap();
        let report = verified(directory.path());
        assert_eq!((report.faults, report.unsealed), (vec![], 0), "after {writes}");
        let reported = report.notes.iter().any(|note| note.contains("records 1 to 3 had no seal"));
        assert!(reported, "after {writes}: {:?}", report.notes);
        if had_room {
            break;
        }
        writes += 1;
    }
    assert!(writes >= 4, "{writes}");
}

fn write_with_outdated_key(directory: &Path) {
    create_trail(directory);
    let key = std::fs::read(directory.join(KEY_FILE)).unwrap();
    let mut log = open(directory, SECOND);
    (1..=3).for_each(|number| _ = put(&mut log, number, SECOND));
    log.maintain(10 * SECOND).unwrap();
    std::fs::write(directory.join(KEY_FILE), key).unwrap();
}

#[test]
fn key_survives_replacement_interrupted_by_full_disk() {
    for starts in [false, true] {
        let mut writes = 0;
        loop {
            let directory = new_directory();
            let directory = directory.path();
            let disk = FaultyDisk::default();
            disk.copies_on_write.store(true, Ordering::SeqCst);
            let limit = || *disk.writes_left.lock().unwrap() = Some(writes);
            let open_by = |disk: &FaultyDisk| {
                Log::open(Arc::new(disk.clone()), directory, options(), 11 * SECOND)
            };
            let had_room = if starts {
                write_with_outdated_key(directory);
                limit();
                let mut log = open_by(&disk).unwrap().0;
                log.recovery_error().is_none() || log.sync().is_ok()
            } else {
                create_trail(directory);
                let mut log = open_by(&disk).unwrap().0;
                (1..=3).for_each(|number| _ = put(&mut log, number, SECOND));
                log.sync().unwrap();
                limit();
                log.rotate(11 * SECOND).is_ok() || log.sync().is_ok()
            };
            let again =
                open_by(&disk).unwrap_or_else(|error| panic!("{starts}, {writes}: {error}")).0;
            assert!(had_room || again.recovery_error().is_some(), "{starts}, {writes}");
            drop(again);
            open(directory, 12 * SECOND).close(12 * SECOND).unwrap();
            assert_sealed(directory, &format!("{starts}, {writes}"));
            if had_room {
                break;
            }
            writes += 1;
        }
        assert!(writes >= 4, "{writes}");
    }
}

#[test]
fn unreadable_new_key_file_is_kept() {
    let directory = new_directory();
    let directory = directory.path();
    create_trail(directory);
    let disk = FaultyDisk::default();
    disk.copies_on_write.store(true, Ordering::SeqCst);
    let mut log = Log::open(Arc::new(disk.clone()), directory, options(), SECOND).unwrap().0;
    put(&mut log, 1, SECOND);
    log.sync().unwrap();
    let (key, beside, hidden) =
        (directory.join(KEY_FILE), directory.join("key.new"), directory.join("hidden"));
    let refused_with = |log: &mut Log, writes_left| {
        *disk.writes_left.lock().unwrap() = Some(writes_left);
        log.sync().is_err()
    };
    *disk.writes_left.lock().unwrap() = Some(0);
    assert!(log.rotate(2 * SECOND).is_err());
    assert!((1..20).any(|writes_left| refused_with(&mut log, writes_left)
        && std::fs::read(&key).unwrap().iter().all(|byte| *byte == 0)));
    std::fs::rename(&beside, &hidden).unwrap();
    std::os::unix::fs::symlink("key.new", &beside).unwrap();
    assert!(refused_with(&mut log, 0));
    assert!(beside.symlink_metadata().is_ok(), "the only key was removed");
    std::fs::rename(&hidden, &beside).unwrap();
    *disk.writes_left.lock().unwrap() = None;
    log.close(3 * SECOND).unwrap();
    assert_sealed(directory, "");
}
