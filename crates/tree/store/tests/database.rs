//! Guarantees of a database for its writer and readers.

mod fixtures;

use std::time::Duration;

use fixtures::{HOSTID, committed, database, leaf, revision, writer, written};
use vouch_tree_store::conformance::IV;
use vouch_tree_store::disk::SystemDisk;
use vouch_tree_store::{Database, Error, FrameSink, FrameSource, RemoteView, WriteOptions};

#[test]
fn committed_frames_are_seen_by_reader_and_next_writer() {
    let (_dir, path, w) = written();
    let leaves: Vec<_> = (0..500).map(leaf).collect();
    for (handle, frame) in &leaves {
        assert!(w.put(handle, frame).unwrap());
    }
    let new = revision(&w, 1, 0..500);
    let signed = new.signed.clone();
    let counts = w.commit(new).unwrap();
    assert!(counts.new_frames > 500);
    drop(w);
    let snapshot = Database::open_read(&path).unwrap();
    assert_eq!(snapshot.head().as_deref(), Some(&signed[..]));
    assert_eq!((snapshot.hostid(), snapshot.iv()), (HOSTID, IV));
    assert_eq!(snapshot.revisions().len(), 1);
    for (handle, frame) in &leaves {
        assert_eq!(snapshot.get(handle).unwrap().as_ref(), Some(frame));
    }
    assert_eq!(snapshot.locate(&leaf(9999).0).unwrap().map(|l| l.offset), None);
    let w = writer(&path);
    assert!(!w.put(&leaves[7].0, &leaves[7].1).unwrap());
    assert_eq!(w.progress().shared_frames, 1);
}

#[test]
fn adjacent_records_are_sent_as_one_run() {
    let (_dir, path, w) = written();
    let leaves: Vec<_> = (0..5).map(leaf).collect();
    leaves.iter().for_each(|(handle, frame)| assert!(w.put(handle, frame).unwrap()));
    w.checkpoint().unwrap();
    let snapshot = Database::open_read(&path).unwrap();
    let places: Vec<_> =
        leaves.iter().map(|(handle, _)| snapshot.locate(handle).unwrap().unwrap()).collect();
    assert!(places.windows(2).all(|pair| pair[1].follows(&pair[0]) && !pair[0].follows(&pair[1])));
    let mut wire = vec![0xee];
    places[0].read_record(&mut wire).unwrap();
    let frame = &leaves[0].1;
    assert_eq!(wire[1..9], [[0, 0, 0, 1], (frame.len() as u32).to_be_bytes()].concat());
    assert_eq!(wire[9..9 + frame.len()], frame[..]);
    assert_eq!(wire.len() % 4, 1);
}

#[test]
fn lock_is_private_to_owner() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, path) = database();
    let mode = || std::fs::metadata(path.join("lock")).unwrap().permissions().mode() & 0o777;
    drop(writer(&path));
    assert_eq!(mode(), 0o600);
    std::fs::set_permissions(path.join("lock"), std::fs::Permissions::from_mode(0o644)).unwrap();
    drop(writer(&path));
    assert_eq!(mode(), 0o600, "a descriptor of an earlier version is closed");
}

#[test]
fn second_writer_learns_who_holds_the_lock() {
    let (_dir, path) = database();
    let first = writer(&path);
    match Database::open_write(&path, WriteOptions::default()) {
        Err(Error::Busy { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("{other:?}"),
    }
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            Database::open_write(
                &path,
                WriteOptions { lock_wait: Duration::from_secs(20), ..Default::default() },
            )
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(first);
        second.join().unwrap().unwrap();
    });
}

#[test]
fn reader_sees_new_revision_only_after_refresh() {
    let (_dir, path) = database();
    let snapshot = Database::open_read(&path).unwrap();
    assert_eq!(snapshot.head(), None);
    assert!(!snapshot.refresh().unwrap());
    let w = writer(&path);
    let new = revision(&w, 1, 0..3);
    let fsinfo = new.fsinfo;
    w.commit(new).unwrap();
    assert_eq!(snapshot.head(), None);
    assert!(!snapshot.contains(&fsinfo).unwrap());
    assert!(snapshot.refresh().unwrap());
    assert!(snapshot.head().is_some());
    assert!(snapshot.contains(&fsinfo).unwrap());
    assert!(!snapshot.refresh().unwrap());
}

#[test]
fn next_writer_adopts_uncommitted_frames() {
    let (_dir, path, w) = written();
    (0..300).map(leaf).for_each(|(handle, frame)| assert!(w.put(&handle, &frame).unwrap()));
    drop(w);
    assert_eq!(
        Database::open_read(&path).unwrap().get(&leaf(5).0).unwrap(),
        None,
        "not committed, not seen"
    );
    let w = writer(&path);
    assert_eq!(w.adopted().new_frames, 300);
    assert!(!w.put(&leaf(5).0, &leaf(5).1).unwrap());
    w.commit(revision(&w, 1, 0..300)).unwrap();
    let snapshot = Database::open_read(&path).unwrap();
    (0..300)
        .map(leaf)
        .for_each(|(handle, frame)| assert_eq!(snapshot.get(&handle).unwrap(), Some(frame)));
}

#[test]
fn revision_with_missing_frame_is_refused() {
    let (_dir, _, w) = written();
    let mut new = revision(&w, 1, 0..3);
    new.companions.push(leaf(77).0);
    assert!(
        matches!(w.commit(new), Err(Error::Incomplete { number: 1, handle }) if handle == leaf(77).0)
    );
    w.commit(revision(&w, 2, 0..3)).unwrap();
    assert!(matches!(
        w.commit(revision(&w, 2, 0..4)),
        Err(Error::RevisionOrder { newest: 2, offered: 2 })
    ));
}

#[test]
fn old_revisions_are_dropped_and_tagged_ones_kept() {
    let (_dir, _, w) = written();
    for number in 1..=6 {
        let mut new = revision(&w, number, 0..3);
        new.tag = (number == 2).then(|| "release".to_owned());
        new.keep = (number > 3).then_some(2);
        w.commit(new).unwrap();
    }
    let numbers =
        |w: &vouch_tree_store::Writer| w.revisions().iter().map(|r| r.number).collect::<Vec<_>>();
    assert_eq!(numbers(&w), [2, 5, 6]);
    assert!(w.drop_tag("release").unwrap());
    assert!(!w.drop_tag("release").unwrap());
    assert_eq!(w.retain(1).unwrap(), 2);
    assert_eq!(numbers(&w), [6]);
}

#[test]
fn statements_outlast_commits() {
    let (_dir, path, w) = written();
    w.set_statements(vec![b"revoked".to_vec()]).unwrap();
    w.commit(revision(&w, 1, 0..1)).unwrap();
    drop(w);
    assert_eq!(Database::open_read(&path).unwrap().statements(), [b"revoked".to_vec()]);
}

#[test]
fn only_empty_directory_becomes_database() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in
        [("lock", &b"my padlock's code"[..]), ("notes", b""), ("manifest.txt", b"x")]
    {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join(name), content).unwrap();
        let refused = Database::ensure(&SystemDisk, &path, HOSTID, IV, Duration::ZERO).unwrap_err();
        assert!(matches!(refused, Error::NotEmpty { .. }), "{refused}");
        assert_eq!(std::fs::read(path.join(name)).unwrap(), content);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
    }
    let (dir, path) = database();
    assert!(matches!(Database::create(&path, HOSTID, IV), Err(Error::Exists { .. })));
    let missing = dir.path().join("none");
    assert!(matches!(Database::open_read(&missing), Err(Error::NotFound { .. })));
    assert!(matches!(
        Database::open_write(&missing, WriteOptions::default()),
        Err(Error::NotFound { .. })
    ));
    drop(writer(&path));
    let w = writer(&path);
    w.commit(revision(&w, 1, 0..3)).unwrap();
    drop(w);
    std::fs::remove_file(path.join("manifest")).unwrap();
    assert!(matches!(Database::create(&path, HOSTID, IV), Err(Error::NotEmpty { .. })));
}

#[test]
fn killed_creation_is_repeated_and_concurrent_ones_wait() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    for made in ["", "packs", "index"] {
        std::fs::create_dir(path.join(made)).unwrap();
    }
    std::fs::write(path.join("lock"), "4711\n").unwrap();
    std::fs::write(path.join("manifest.next"), "half").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                Database::ensure(&SystemDisk, &path, HOSTID, IV, Duration::from_secs(20)).unwrap()
            });
        }
    });
    assert!(Database::open_read(&path).is_ok());
}

#[test]
fn every_altered_byte_of_manifest_is_one_clear_error() {
    let (_dir, path) = committed(0..3);
    let file = path.join("manifest");
    let good = std::fs::read(&file).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        std::fs::write(&file, &bad).unwrap();
        assert!(
            matches!(
                Database::open_read(&path),
                Err(Error::Damaged { .. } | Error::Version { .. })
            ),
            "byte {at}"
        );
        std::fs::write(&file, &good[..at]).unwrap();
        assert!(matches!(Database::open_read(&path), Err(Error::Damaged { .. })), "cut at {at}");
    }
}

#[test]
fn many_small_commits_leave_few_segments() {
    let (_dir, path) = database();
    let w =
        Database::open_write(&path, WriteOptions { fresh_count_max: 700, ..Default::default() })
            .unwrap();
    let mut seed = 0;
    for number in 1..=40 {
        for _ in 0..number * 30 {
            let (handle, frame) = leaf(seed);
            w.put(&handle, &frame).unwrap();
            seed += 1;
        }
        w.commit(revision(&w, number, 0..3)).unwrap();
    }
    let segments =
        RemoteView::parse(&std::fs::read(path.join("manifest")).unwrap()).unwrap().segments().len();
    assert!(segments <= 4, "{segments} segments");
    let snapshot = Database::open_read(&path).unwrap();
    (0..seed).map(leaf).for_each(|(handle, _)| assert!(snapshot.contains(&handle).unwrap()));
}
