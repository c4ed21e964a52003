//! Repair of a damaged index.

mod fixtures;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fixtures::{database, leaf, revision, writer};
use vouch_tree_store::{CollectOptions, Database, Error, FrameSource, RemoteView};

fn filled() -> (tempfile::TempDir, PathBuf) {
    let (dir, path) = database();
    let writer = writer(&path);
    for number in 1..=3 {
        let mut new = revision(&writer, number, number * 20..number * 20 + 60);
        new.keep = Some(2);
        writer.commit(new).unwrap();
    }
    drop(writer);
    let at_once = CollectOptions {
        garbage_percent_max: 99,
        grace: Some(Duration::ZERO),
        ..CollectOptions::default()
    };
    Database::collect(&path, at_once).unwrap();
    (dir, path)
}

fn files(path: &Path, below: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        fs::read_dir(path.join(below)).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn assert_whole(path: &Path, what: &str) {
    let reader = Database::open_read(path).unwrap();
    for (handle, frame) in (40..120).map(leaf) {
        assert_eq!(reader.get(&handle).unwrap(), Some(frame), "{what}");
    }
    let verified = Database::verify(path, None).unwrap();
    assert!(verified.is_sound(), "{what}: {:?}", verified.problems);
}

type Damage = fn(&Path);

#[test]
fn damaged_index_is_rebuilt() {
    let ways: [(&str, Damage); 5] = [
        ("a flipped bit", |segment| {
            let mut bytes = fs::read(segment).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
            fs::write(segment, bytes).unwrap();
        }),
        ("cut short", |segment| fs::write(segment, &fs::read(segment).unwrap()[..100]).unwrap()),
        ("empty", |segment| fs::write(segment, b"").unwrap()),
        ("missing", |segment| fs::remove_file(segment).unwrap()),
        ("not damaged at all", |_| {}),
    ];
    for (what, damage) in ways {
        let (_dir, path) = filled();
        files(&path, "index").iter().for_each(|segment| damage(segment));
        let repaired = Database::repair(&path, &CollectOptions::default()).unwrap();
        assert!(repaired.frames > 80, "{what}: {repaired:?}");
        assert_whole(&path, what);
        assert_eq!(
            RemoteView::parse(&fs::read(path.join("manifest")).unwrap()).unwrap().segments().len(),
            1,
            "{what}"
        );
        let writer = writer(&path);
        writer.commit(revision(&writer, 4, 40..130)).unwrap();
        drop(writer);
        let done = Database::collect(&path, CollectOptions::default()).unwrap();
        assert!(done.live_frames > 80, "{what}: {done:?}");
        assert_whole(&path, what);
    }
}

#[test]
fn damaged_pack_is_refused_without_changes() {
    let (_dir, path) = filled();
    let pack = files(&path, "packs").pop().unwrap();
    let bytes = fs::read(&pack).unwrap();
    fs::write(&pack, &bytes[..bytes.len() - 5]).unwrap();
    let (index, manifest) = (files(&path, "index"), fs::read(path.join("manifest")).unwrap());
    assert!(matches!(
        Database::repair(&path, &CollectOptions::default()),
        Err(Error::Damaged { .. })
    ));
    assert_eq!(
        (files(&path, "index"), fs::read(path.join("manifest")).unwrap()),
        (index, manifest)
    );
    fs::write(&pack, bytes).unwrap();
    assert_whole(&path, "put back");
}

#[test]
fn empty_database_is_repaired_to_an_empty_one() {
    let (_dir, path) = database();
    assert_eq!(Database::repair(&path, &CollectOptions::default()).unwrap().frames, 0);
    assert!(Database::verify(&path, None).unwrap().is_sound());
}
