//! Kills the process at each disk operation. A power cut may then drop the page cache.

use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::full_disk::count_recovery_records;
use super::power_cut::PowerDisk;
use super::writer::read;
use super::*;

fn disk() -> (tempfile::TempDir, PowerDisk) {
    let directory = new_directory();
    let disk = PowerDisk::new(directory.path());
    create_key(&disk, &directory.path().join(KEY_FILE), &key()).unwrap();
    disk.publish();
    (directory, disk)
}

fn open_by(disk: &PowerDisk, directory: &Path, now_ns: u64) -> Result<Log, LogError> {
    Log::open(Arc::new(disk.clone()), directory, options(), now_ns).map(|(log, _)| log)
}

fn three_synced_of_six(disk: &PowerDisk, directory: &Path) -> Log {
    let mut log = open_by(disk, directory, SECOND).unwrap();
    (1..=3).for_each(|number| _ = put(&mut log, number, SECOND));
    log.sync().unwrap();
    (4..=6).for_each(|number| _ = put(&mut log, number, SECOND));
    log.write().unwrap();
    log
}

fn start_and_close_twice(disk: &PowerDisk, directory: &Path) {
    for turn in 3..5 {
        open_by(disk, directory, turn * SECOND).unwrap().close(turn * SECOND).unwrap();
        simulate_kill(disk);
    }
}

fn simulate_kill(disk: &PowerDisk) {
    disk.clear();
    disk.publish();
    disk.cut_after(u64::MAX);
}

fn end(disk: &PowerDisk, is_power_cut: bool, seed: u64) {
    match is_power_cut {
        true => disk.cut(&mut ChaCha8Rng::seed_from_u64(seed)),
        false => simulate_kill(disk),
    }
}

#[test]
fn seal_is_durable_before_key_advances() {
    for (close, start) in (0..24).flat_map(|close| (0..40).map(move |start| (close, start))) {
        let (directory, disk) = disk();
        let mut log = open_by(&disk, directory.path(), SECOND).unwrap();
        put(&mut log, 1, SECOND);
        log.sync().unwrap();
        disk.cut_after(close);
        let _ = log.close(2 * SECOND);
        simulate_kill(&disk);
        disk.cut_after(start);
        let _ = open_by(&disk, directory.path(), 3 * SECOND);
        disk.cut(&mut ChaCha8Rng::seed_from_u64(close * 1000 + start));
        let log = open_by(&disk, directory.path(), 4 * SECOND)
            .unwrap_or_else(|error| panic!("{close} {start}: {error}"));
        log.close(4 * SECOND).unwrap();
        simulate_kill(&disk);
        assert_eq!(faults(directory.path()), [], "{close} {start}");
    }
}

#[test]
fn records_of_killed_process_are_durable_before_next_seal() {
    for (close, is_own) in (0..24).flat_map(|close| [(close, true), (close, false)]) {
        for refused_step in 0..40 {
            let state = format!(
                "killed after {close}, then step {refused_step} refused, retried by the same start: {is_own}"
            );
            let (directory, disk) = disk();
            let log = three_synced_of_six(&disk, directory.path());
            disk.cut_after(close);
            let _ = log.close(2 * SECOND);
            simulate_kill(&disk);
            disk.refuse_after(refused_step);
            let mut log = open_by(&disk, directory.path(), 3 * SECOND)
                .unwrap_or_else(|error| panic!("{state}: {error}"));
            if is_own {
                log.sync().unwrap_or_else(|error| panic!("{state}: {error}"));
            } else {
                drop(log);
                simulate_kill(&disk);
                open_by(&disk, directory.path(), 3 * SECOND)
                    .unwrap_or_else(|error| panic!("{state}: {error}"));
            }
            disk.cut(&mut ChaCha8Rng::seed_from_u64(close * 1000 + refused_step));
            let log = open_by(&disk, directory.path(), 4 * SECOND)
                .unwrap_or_else(|error| panic!("{state}: {error}"));
            log.close(4 * SECOND).unwrap();
            simulate_kill(&disk);
            let report = verified(directory.path());
            assert_eq!((report.faults, read(directory.path()).0.len()), (vec![], 6), "{state}");
        }
    }
}

#[test]
fn loss_is_reported_once_despite_kill_or_power_cut() {
    for (step, power) in (0..40).flat_map(|step| [(step, false), (step, true)]) {
        let (directory, disk) = disk();
        let mut log = open_by(&disk, directory.path(), SECOND).unwrap();
        (1..=5).for_each(|number| _ = put(&mut log, number, SECOND));
        log.sync().unwrap();
        log.store_lost_count(&LostCount {
            next_seq: log.next_seq() + 3,
            unnumbered: 2,
            since_ns: SECOND,
            ..LostCount::default()
        })
        .unwrap();
        drop(log);
        simulate_kill(&disk);
        disk.cut_after(step);
        let _ = open_by(&disk, directory.path(), 2 * SECOND);
        end(&disk, power, step);
        start_and_close_twice(&disk, directory.path());
        assert_eq!(read(directory.path()).1, 5, "step {step}, power {power}");
    }
}

#[test]
fn later_loss_is_reported_after_earlier_report() {
    for (step, is_synced) in (0..40).flat_map(|step| [(step, false), (step, true)]) {
        let (directory, disk) = disk();
        let log = three_synced_of_six(&disk, directory.path());
        let gaps = vec![(5, 7)];
        log.store_lost_count(&LostCount {
            next_seq: log.next_seq() + 3,
            unnumbered: 2,
            since_ns: SECOND,
            gaps,
            ..LostCount::default()
        })
        .unwrap();
        drop(log);
        simulate_kill(&disk);
        disk.set_unsyncable((!is_synced).then(|| SegmentFile::open(directory.path(), 1).path));
        disk.cut_after(step);
        let _ = open_by(&disk, directory.path(), 2 * SECOND);
        disk.cut(&mut ChaCha8Rng::seed_from_u64(step));
        disk.set_unsyncable(None);
        start_and_close_twice(&disk, directory.path());
        let (there, reported) = read(directory.path());
        let stands = there.iter().filter(|path| **path == b"/srv/data/file-5").count() as u64;
        let others = there.len() as u64 - stands;
        assert_eq!(
            reported,
            (8 - others) + 2 + (1 - stands) * 7,
            "step {step}, synced {is_synced}: {others} and {stands} are present"
        );
    }
}

#[test]
fn key_survives_full_disk_followed_by_kill_or_power_cut() {
    for (refused_step, step, power) in (0..24).flat_map(|refused_step| {
        (0..20).flat_map(move |step| [(refused_step, step, false), (refused_step, step, true)])
    }) {
        let (directory, disk) = disk();
        let mut log = open_by(&disk, directory.path(), SECOND).unwrap();
        put(&mut log, 1, SECOND);
        log.sync().unwrap();
        disk.refuse_after(refused_step);
        let is_done = log.rotate(2 * SECOND).is_ok();
        disk.cut_after(step);
        if !is_done {
            let _ = log.sync();
        }
        drop(log);
        end(&disk, power, refused_step * 100 + step);
        let state = format!("step {refused_step} refused, then {step}, power {power}");
        let log = open_by(&disk, directory.path(), 3 * SECOND)
            .unwrap_or_else(|error| panic!("{state}: {error}"));
        log.close(3 * SECOND).unwrap();
        simulate_kill(&disk);
        assert_sealed(directory.path(), &state.to_string());
        if is_done {
            break;
        }
    }
}

#[test]
fn torn_bytes_are_reported_once_despite_kill_or_power_cut() {
    let states: [(bool, u64, &[u8], bool); 6] = [
        (false, 1, b"torn", false),
        (true, 2, b"", false),
        (true, 2, b"torn", false),
        (true, 2, b"torn", true),
        (false, 2, b"torn", false),
        (false, 2, b"torn", true),
    ];
    for (seed, (is_closed, segment, bytes, is_renamed)) in
        (0..150).flat_map(|seed| states.map(|state| (seed, state)))
    {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let state = format!(
            "closed {is_closed}, segment {segment}, {} bytes, renamed {is_renamed}, seed {seed}",
            bytes.len()
        );
        let (directory, disk) = disk();
        let mut log = open_by(&disk, directory.path(), SECOND).unwrap();
        (1..=3).for_each(|number| _ = put(&mut log, number, SECOND));
        log.sync().unwrap();
        if is_closed {
            log.close(SECOND).unwrap();
        }
        disk.clear();
        disk.publish();
        let path = SegmentFile::open(directory.path(), segment).path;
        let len = std::fs::metadata(&path).map_or(0, |file| file.len());
        let torn = disk.open(&path).or_else(|_| disk.create(&path, false)).unwrap();
        torn.write_at(bytes, len).unwrap();
        torn.sync().unwrap();
        disk.sync_dir(directory.path()).unwrap();
        if is_renamed {
            disk.rename(&path, &path.with_extension(TORN_EXTENSION)).unwrap();
        }
        simulate_kill(&disk);
        for turn in 2..5 {
            disk.refuse_after(u64::from(random.next_u32() % 60));
            disk.cut_after(u64::from(random.next_u32() % 30));
            let _ = open_by(&disk, directory.path(), turn * SECOND);
            disk.refuse_after(u64::MAX);
            match random.next_u32().is_multiple_of(2) {
                true => disk.cut(&mut random),
                false => simulate_kill(&disk),
            }
        }
        let mut reported = Vec::new();
        for turn in 5..7 {
            open_by(&disk, directory.path(), turn * SECOND)
                .unwrap_or_else(|error| panic!("{state}: {error}"))
                .close(turn * SECOND)
                .unwrap();
            simulate_kill(&disk);
            reported.push(count_recovery_records(directory.path(), &state));
        }
        assert!(reported[0] > 0 && reported[0] == reported[1], "{state}: {reported:?}");
        assert_eq!(faults(directory.path()), [], "{state}");
    }
}

#[test]
fn many_torn_files_are_reported_once_in_several_records() {
    for (step, power) in (0..30).flat_map(|step| [(step, false), (step, true)]) {
        let (directory, disk) = disk();
        open_by(&disk, directory.path(), SECOND).unwrap().close(SECOND).unwrap();
        let first = SegmentFile::open(directory.path(), 2).path;
        for number in 1..=150 {
            let path = first.with_extension(if number == 1 {
                TORN_EXTENSION.into()
            } else {
                format!("{number}.{TORN_EXTENSION}")
            });
            let torn = disk.create(&path, false).unwrap();
            torn.write_at(&b"torn"[..number % 5], 0).unwrap();
            torn.sync().unwrap();
        }
        disk.sync_dir(directory.path()).unwrap();
        simulate_kill(&disk);
        disk.cut_after(step);
        let _ = open_by(&disk, directory.path(), 2 * SECOND);
        end(&disk, power, step);
        let state = format!("step {step}, power {power}");
        let reported = [3, 4].map(|turn| {
            open_by(&disk, directory.path(), turn * SECOND).unwrap().close(turn * SECOND).unwrap();
            simulate_kill(&disk);
            count_recovery_records(directory.path(), &state)
        });
        assert!(reported[0] > 1 && reported[0] == reported[1], "{state}: {reported:?}");
        assert_eq!(faults(directory.path()), [], "{state}");
    }
}
