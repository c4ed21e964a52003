//! Garbage collection.

mod fixtures;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use fixtures::{committed, database, leaf, revision, writer, written};
use vouch_tree_store::{
    CollectOptions, Collected, Database, Error, FrameSink, FrameSource, Verified, WriteOptions,
};

fn collect(path: &Path) -> Collected {
    Database::collect(path, CollectOptions { pack_len: Some(SMALL_PACK), ..Default::default() })
        .unwrap()
}

fn verify(path: &Path) -> Verified {
    Database::verify(path, None).unwrap()
}

fn small_packs() -> WriteOptions {
    WriteOptions { pack_len: Some(SMALL_PACK), fresh_count_max: 100, ..Default::default() }
}

const SMALL_PACK: u32 = 100_000;

#[test]
fn collection_keeps_needed_frames_and_history() {
    let (_dir, path) = database();
    let w = Database::open_write(&path, small_packs()).unwrap();
    let mut histories = Vec::new();
    for number in 1..=5_u64 {
        let mut new = revision(&w, number, number * 400..number * 400 + 500);
        new.keep = Some(2);
        histories.push(new.fsinfo);
        w.commit(new).unwrap();
    }
    drop(w);
    let old_reader = Database::open_read(&path).unwrap();
    let (kept, gone) = (leaf(1_700), leaf(600));
    let before = old_reader.locate(&gone.0).unwrap().unwrap();
    let collected = collect(&path);
    assert!(collected.bytes_after < collected.bytes_before / 2, "{collected:?}");
    let pages = collected.dropped_frames - (1600 - 400);
    assert!((3..=15).contains(&pages), "{pages} directory pages of three revisions");
    let reader = Database::open_read(&path).unwrap();
    (1600..2500)
        .map(leaf)
        .for_each(|(handle, frame)| assert_eq!(reader.get(&handle).unwrap(), Some(frame)));
    (400..1600).map(leaf).for_each(|(handle, _)| assert_eq!(reader.get(&handle).unwrap(), None));
    histories
        .iter()
        .for_each(|fsinfo| assert!(reader.get(fsinfo).unwrap().is_some(), "history stays"));
    assert_eq!(before.read_frame().unwrap(), gone.1, "a location outlives the collection");
    assert_eq!(old_reader.get(&kept.0).unwrap(), Some(kept.1), "an old reader finds moved frames");
    let sound = verify(&path);
    assert!(sound.is_sound(), "{sound:?}");
    let again = collect(&path);
    assert_eq!(
        (again.dropped_frames, again.moved_bytes, again.bytes_before),
        (0, 0, collected.bytes_after)
    );
}

fn files(path: &Path) -> BTreeSet<String> {
    let below = |dir: &str| {
        std::fs::read_dir(path.join(dir))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect::<Vec<_>>()
    };
    ["packs", "index"]
        .iter()
        .flat_map(|dir| {
            below(dir).into_iter().map(move |name| format!("{dir}/{}", name.to_str().unwrap()))
        })
        .collect()
}

fn with_manifest<T>(path: &Path, manifest: &[u8], act: impl FnOnce() -> T) -> T {
    let newest = std::fs::read(path.join("manifest")).unwrap();
    std::fs::write(path.join("manifest"), manifest).unwrap();
    let done = act();
    std::fs::write(path.join("manifest"), newest).unwrap();
    done
}

#[test]
fn files_of_earlier_manifests_stay_for_the_grace_period() {
    let (_dir, path) = database();
    let publish = |number: u64| {
        let w = Database::open_write(&path, small_packs()).unwrap();
        let mut new = revision(&w, number, number * 400..number * 400 + 500);
        new.keep = Some(1);
        w.commit(new).unwrap();
        std::fs::read(path.join("manifest")).unwrap()
    };
    let first = publish(1);
    let served = Database::open_read(&path).unwrap();
    let named = files(&path);
    let second = publish(2);
    let collected = collect(&path);
    assert!(collected.removed_files == 0 && collected.waiting_files > 0, "{collected:?}");
    let third = publish(3);
    assert!(named.is_subset(&files(&path)), "no file that the first manifest names is removed");
    for manifest in [&first, &second, &third] {
        with_manifest(&path, manifest, || assert!(verify(&path).is_sound()));
    }
    assert!(served.refresh().unwrap());
    let lens = named.iter().map(|name| served.file(name).unwrap().map(|(_, len)| len));
    assert!(
        lens.eq(named.iter().map(|name| Some(std::fs::metadata(path.join(name)).unwrap().len()))),
        "a replica serves them too"
    );
    assert!(served.file("packs/d-00ffffff.pack").unwrap().is_none());

    let record = std::fs::read_to_string(path.join("garbage")).unwrap();
    let name = record.split_whitespace().nth(1).unwrap().to_owned();
    assert!(named.contains(&name), "{record}");
    let since: u64 = record.split_once(' ').unwrap().0.parse().unwrap();
    std::fs::write(
        path.join("garbage"),
        record.replacen(&since.to_string(), &(since - 3600).to_string(), 1),
    )
    .unwrap();
    assert_eq!(collect(&path).removed_files, 1, "one file is old enough");
    assert!(!files(&path).contains(&name));
    assert_eq!(served.file(&name).unwrap().map(drop), None);
    let at_once = CollectOptions {
        grace: Some(Duration::ZERO),
        pack_len: Some(SMALL_PACK),
        ..Default::default()
    };
    Database::collect(&path, at_once).unwrap();
    let newest = Database::open_read(&path).unwrap();
    assert!(
        files(&path).iter().all(|name| newest.file(name).unwrap().is_some()),
        "no unused file is left"
    );
    assert_eq!(std::fs::read(path.join("garbage")).unwrap(), b"");
    assert!(verify(&path).is_sound());
}

#[test]
fn record_of_garbage_never_removes_other_files() {
    let (_dir, path) = committed(0..50);
    let named = files(&path);
    let lines = named.iter().map(|name| format!("1000 {name}\n")).collect::<String>();
    std::fs::write(
        path.join("garbage"),
        format!("{lines}1000 ../kept\n1000 packs/../../kept\n1000 manifest\n\u{0}"),
    )
    .unwrap();
    std::fs::write(path.join("../kept"), "").unwrap();
    let zero = CollectOptions {
        grace: Some(Duration::ZERO),
        garbage_percent_max: 100,
        ..Default::default()
    };
    Database::collect(&path, zero).unwrap();
    assert_eq!(files(&path), named);
    assert!(path.join("../kept").exists() && verify(&path).is_sound());
    std::fs::remove_file(path.join("garbage")).unwrap();
    collect(&path);
    assert!(verify(&path).is_sound(), "a lost record is no damage");
}

#[test]
fn writer_removes_week_old_garbage_without_a_collection() {
    let (_dir, path) = committed(0..50);
    let w = writer(&path);
    w.commit(revision(&w, 2, 0..60)).unwrap();
    drop(w);
    let unused = |path: &Path| {
        let record = std::fs::read_to_string(path.join("garbage")).unwrap();
        files(path).into_iter().filter(|name| record.contains(name)).collect::<Vec<_>>()
    };
    let merged = unused(&path);
    assert_eq!(merged.len(), 1, "the segment that was merged");
    assert!(
        Database::open_read(&path).unwrap().file(&merged[0]).unwrap().is_some(),
        "a reader that starts now serves it"
    );
    drop(writer(&path));
    assert_eq!(unused(&path), merged);
    let record = std::fs::read_to_string(path.join("garbage")).unwrap();
    let since: u64 = record.split_once(' ').unwrap().0.parse().unwrap();
    std::fs::write(
        path.join("garbage"),
        record.replace(&since.to_string(), &(since - 7 * 24 * 3600).to_string()),
    )
    .unwrap();
    drop(writer(&path));
    assert!(!files(&path).contains(&merged[0]));
    assert!(verify(&path).is_sound());
}

#[test]
fn collected_frame_can_be_stored_again() {
    let (_dir, path, w) = written();
    w.commit(revision(&w, 1, 0..50)).unwrap();
    let mut new = revision(&w, 2, 50..100);
    new.keep = Some(1);
    w.commit(new).unwrap();
    drop(w);
    collect(&path);
    let w = writer(&path);
    let (handle, frame) = leaf(3);
    assert!(w.put(&handle, &frame).unwrap());
    assert!(!w.put(&leaf(53).0, &leaf(53).1).unwrap());
    w.commit(revision(&w, 3, 0..4)).unwrap();
    assert_eq!(Database::open_read(&path).unwrap().get(&handle).unwrap(), Some(frame));
}

#[test]
fn many_small_packs_are_joined() {
    let (_dir, path, w) = written();
    for number in 1..=20 {
        w.commit(revision(&w, number, 0..number * 3)).unwrap();
    }
    drop(w);
    let collected = Database::collect(&path, CollectOptions::default()).unwrap();
    assert_eq!(
        (collected.packs_before, collected.packs_after, collected.dropped_frames),
        (40, 2, 0)
    );
    assert!(verify(&path).is_sound());
    let reader = Database::open_read(&path).unwrap();
    assert_eq!(reader.revisions().len(), 20);
    (0..60)
        .map(leaf)
        .for_each(|(handle, frame)| assert_eq!(reader.get(&handle).unwrap(), Some(frame)));
}

#[test]
fn collection_waits_for_writer_and_keeps_its_commit() {
    let (_dir, path, w) = written();
    w.commit(revision(&w, 1, 0..100)).unwrap();
    let mut new = revision(&w, 2, 100..200);
    new.keep = Some(1);
    w.commit(new).unwrap();
    assert!(matches!(Database::collect(&path, CollectOptions::default()), Err(Error::Busy { .. })));
    std::thread::scope(|scope| {
        let wait = CollectOptions { lock_wait: Duration::from_secs(30), ..Default::default() };
        let collecting = scope.spawn(|| Database::collect(&path, wait).unwrap());
        std::thread::sleep(Duration::from_millis(100));
        w.commit(revision(&w, 3, 50..150)).unwrap();
        drop(w);
        assert_eq!(collecting.join().unwrap().dropped_frames, 51);
    });
    let reader = Database::open_read(&path).unwrap();
    (50..200)
        .map(leaf)
        .for_each(|(handle, frame)| assert_eq!(reader.get(&handle).unwrap(), Some(frame)));
    assert!(verify(&path).is_sound());
}

#[test]
fn recent_unfinished_data_stays_for_next_writer() {
    let (_dir, path) = committed(0..50);
    let w = writer(&path);
    let (handle, frame) = leaf(9000);
    w.put(&handle, &frame).unwrap();
    drop(w);
    let hour = Duration::from_secs(3600);
    let w =
        Database::open_write(&path, WriteOptions { adopt: false, ..Default::default() }).unwrap();
    assert_eq!((w.retain(1).unwrap(), w.contains(&handle).unwrap()), (0, false));
    drop(w);
    Database::collect(&path, CollectOptions { unfinished_age_max: hour, ..Default::default() })
        .unwrap();
    let w = writer(&path);
    assert_eq!((w.adopted().new_frames, w.get(&handle).unwrap()), (1, Some(frame)));
    drop(w);
    for entry in std::fs::read_dir(path.join("packs")).unwrap() {
        let file = std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(std::time::SystemTime::now() - 2 * hour).unwrap();
    }
    Database::collect(&path, CollectOptions { unfinished_age_max: hour, ..Default::default() })
        .unwrap();
    assert_eq!(writer(&path).adopted().new_frames, 0);
    assert!(verify(&path).is_sound());
}

#[test]
fn old_unfinished_data_is_collected() {
    let (_dir, path, w) = written();
    (0..100).map(leaf).for_each(|(handle, frame)| assert!(w.put(&handle, &frame).unwrap()));
    drop(w);
    collect(&path);
    assert_eq!(std::fs::read_dir(path.join("packs")).unwrap().count(), 0);
    assert_eq!(writer(&path).adopted().new_frames, 0);
}

#[test]
fn every_flipped_byte_of_a_pack_is_found() {
    let (_dir, path) = committed([1, 2, 3]);
    for pack in std::fs::read_dir(path.join("packs")).unwrap() {
        let pack = pack.unwrap().path();
        let good = std::fs::read(&pack).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&pack, &bad).unwrap();
            assert!(!verify(&path).is_sound(), "{} byte {at}", pack.display());
        }
        std::fs::write(&pack, &good).unwrap();
    }
    assert_eq!(verify(&path).problem_count, 0);
}

#[test]
fn every_flipped_byte_of_a_segment_is_found() {
    let (_dir, path) = committed(1..20);
    let segment = std::fs::read_dir(path.join("index")).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(&segment).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        std::fs::write(&segment, &bad).unwrap();
        assert!(
            Database::verify(&path, None).map_or(true, |verified| !verified.is_sound()),
            "byte {at}"
        );
    }
}

#[test]
fn missing_pack_is_named_by_all() {
    let (_dir, path) = committed(1..20);
    let mut packs = std::fs::read_dir(path.join("packs")).unwrap().map(|e| e.unwrap().path());
    let data = packs.find(|p| p.file_name().unwrap().to_str().unwrap().starts_with('d')).unwrap();
    std::fs::remove_file(&data).unwrap();
    let named = |error: Error| {
        assert!(error.to_string().contains(data.file_name().unwrap().to_str().unwrap()), "{error}")
    };
    named(Database::open_read(&path).unwrap().get(&leaf(5).0).unwrap_err());
    named(Database::open_write(&path, WriteOptions::default()).unwrap_err());
    assert!(!verify(&path).is_sound());
}
