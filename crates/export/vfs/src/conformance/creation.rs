use std::sync::atomic::{AtomicBool, Ordering};

use super::fixture::{BOTH, Fixture, Rule, alice, mode, name, read, refused, write};
use crate::{Blocking, CreateHow, Error, FileId, FileType, NewNode, SetAttributes};

pub(super) const RULES: &[Rule] = &[
    ("guarded_creation_refuses_existing_name", guarded_creation_refuses_existing_name),
    ("unchecked_creation_opens_existing_file", unchecked_creation_opens_existing_file),
    ("exclusive_creation_recognizes_retry", exclusive_creation_recognizes_retry),
    ("racing_creations_create_file_once", racing_creations_create_file_once),
    ("creation_beside_removals_misses_no_name", creation_beside_removals_misses_no_name),
    ("umask_is_applied", umask_is_applied),
    ("new_file_is_open_despite_its_mode", new_file_is_open_despite_its_mode),
    ("failed_creation_leaves_no_file", failed_creation_leaves_no_file),
    (
        "remove_incomplete_removes_only_the_created_file",
        remove_incomplete_removes_only_the_created_file,
    ),
    (
        "racing_remove_incomplete_removes_no_other_file",
        racing_remove_incomplete_removes_no_other_file,
    ),
    ("new_file_becomes_durable_despite_its_mode", new_file_becomes_durable_despite_its_mode),
];

fn guarded_creation_refuses_existing_name(fixture: &Fixture) {
    let root = fixture.root();
    let made =
        fixture.create(&root, "a", CreateHow::Guarded, &mode(0o640)).expect("the name is free");
    assert!(made.new, "the entry is new");
    assert_eq!(
        (made.attributes.file_type, made.attributes.mode, made.attributes.size),
        (FileType::Regular, 0o640, 0),
        "the file has the requested attributes"
    );
    refused!(
        fixture.create(&root, "a", CreateHow::Guarded, &mode(0o644)),
        Error::Exists,
        "guarded"
    );
    fixture.directory(&root, "d", 0o755);
    refused!(
        fixture.create(&root, "d", CreateHow::Guarded, &mode(0o644)),
        Error::Exists,
        "guarded, a directory"
    );
    refused!(
        fixture.create(&root, "d", CreateHow::Unchecked, &mode(0o644)),
        Error::IsDirectory,
        "unchecked, a directory"
    );
    refused!(
        fixture.make(&root, "a", NewNode::Directory, &mode(0o755)),
        Error::Exists,
        "a directory over a file"
    );
    let file = fixture.found(&root, "a");
    refused!(
        fixture.create(&file, "x", CreateHow::Guarded, &mode(0o644)),
        Error::NotDirectory,
        "creation in a file"
    );
}

fn unchecked_creation_opens_existing_file(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&root, "a", b"content");
    let found =
        fixture.create(&root, "a", CreateHow::Unchecked, &mode(0o600)).expect("opening succeeds");
    assert!(!found.new, "the file existed");
    assert_eq!((found.id, found.attributes.mode), (file, 0o644), "the file is unchanged");
    assert_eq!(read(&*found.open, 0, 100).0, b"content", "its content stays");
    let cut = SetAttributes { size: Some(0), ..mode(0o600) };
    let found = fixture.create(&root, "a", CreateHow::Unchecked, &cut).expect("opening succeeds");
    assert_eq!(
        (found.attributes.size, found.attributes.mode),
        (0, 0o644),
        "only a size of 0 is set"
    );
}

fn exclusive_creation_recognizes_retry(fixture: &Fixture) {
    let root = fixture.root();
    let create =
        |verifier| fixture.create(&root, "a", CreateHow::Exclusive(verifier), &mode(0o600));
    let first = create([1, 2, 3, 4, 5, 6, 7, 8]).expect("the name is free");
    assert!(first.new, "the entry is new");
    let again = create([1, 2, 3, 4, 5, 6, 7, 8]).expect("a retry succeeds");
    assert!(!again.new, "a retry creates no file");
    assert_eq!(again.id, first.id, "a retry finds the file of the first try");
    refused!(create([1, 2, 3, 4, 5, 6, 7, 9]), Error::Exists, "another verifier");
    refused!(create([2, 2, 3, 4, 5, 6, 7, 8]), Error::Exists, "another verifier");
    refused!(
        fixture.create(&root, "a", CreateHow::Guarded, &mode(0o600)),
        Error::Exists,
        "guarded"
    );
    let now = SetAttributes {
        accessed: Some(crate::SetTime::Now),
        modified: Some(crate::SetTime::Now),
        ..SetAttributes::default()
    };
    fixture.set(&first.id, now);
    refused!(create([1, 2, 3, 4, 5, 6, 7, 8]), Error::Exists, "a retry after the times were set");
}

fn racing_creations_create_file_once(fixture: &Fixture) {
    let root = fixture.root();
    for round in 0..20 {
        let file = format!("file{round}");
        let made = std::thread::scope(|scope| {
            let create = |how| {
                let (file, root, fs, owner) = (&file, &root, &fixture.fs, &fixture.owner);
                scope.spawn(move || {
                    fs.create(owner, root, name(file), how, &mode(0o644), BOTH).map(|made| made.new)
                })
            };
            let threads =
                [CreateHow::Guarded, CreateHow::Guarded, CreateHow::Unchecked].map(create);
            threads.map(|thread| thread.join().expect("no panic"))
        });
        let new = made.iter().filter(|made| matches!(made, Ok(true))).count();
        assert_eq!(new, 1, "exactly one creation makes the file: {made:?}");
        assert!(made[2].is_ok(), "unchecked creation always succeeds: {made:?}");
    }
}

/// `vouch bench consistency` found an exclusive creation that was refused with NOENT.
fn creation_beside_removals_misses_no_name(fixture: &Fixture) {
    let (fs, owner, root) = (&fixture.fs, &fixture.owner, &fixture.root());
    let is_done = AtomicBool::new(false);
    let create =
        |how| fs.create(owner, root, name("a"), how, &mode(0o644), BOTH).map(|made| made.new);
    let made = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let _ = create(CreateHow::Guarded);
                let _ = fs.remove(owner, root, name("a"), None);
            }
        });
        let create_all = |verifier: u16| {
            let [high, low] = verifier.to_be_bytes();
            let exclusive = CreateHow::Exclusive([0, 0, high, low, 0, 0, high, low]);
            [CreateHow::Guarded, CreateHow::Unchecked, exclusive].map(create)
        };
        let made: Vec<_> = (1..2000).flat_map(create_all).collect();
        is_done.store(true, Ordering::Relaxed);
        made
    });
    for made in made {
        assert!(matches!(made, Ok(_) | Err(Error::Exists)), "{made:?}");
    }
}

fn umask_is_applied(fixture: &Fixture) {
    let root = fixture.root();
    let masked = SetAttributes { umask: Some(0o027), ..mode(0o666) };
    let made = fixture.create(&root, "a", CreateHow::Guarded, &masked).expect("creation succeeds");
    assert_eq!(made.attributes.mode, 0o640, "a file");
    let masked = SetAttributes { umask: Some(0o027), ..mode(0o777) };
    let made = fixture.make(&root, "d", NewNode::Directory, &masked).expect("creation succeeds");
    assert_eq!(made.1.mode, 0o750, "a directory");
    let made =
        fixture.create(&root, "b", CreateHow::Guarded, &mode(0o666)).expect("creation succeeds");
    assert_eq!(
        made.attributes.mode, 0o666,
        "without a caller's umask, the process's umask is ignored"
    );
    let made =
        fixture.make(&root, "s", NewNode::Directory, &mode(0o1777)).expect("creation succeeds");
    assert_eq!(made.1.mode, 0o1777, "the sticky bit of a directory is set");
}

fn new_file_is_open_despite_its_mode(fixture: &Fixture) {
    let root = fixture.root();
    let made = fixture.create(&root, "a", CreateHow::Guarded, &mode(0)).expect("creation succeeds");
    write(&*made.open, 0, b"content");
    assert_eq!(
        read(&*made.open, 0, 100).0,
        b"content",
        "the file is open with the requested access"
    );
    if fixture.has_callers() {
        fixture.set(&root, mode(0o777));
        let made = fixture
            .create_as(&alice(), &root, "b", CreateHow::Guarded, &mode(0))
            .expect("creation succeeds");
        write(&*made.open, 0, b"content");
        assert_eq!(
            read(&*made.open, 0, 100).0,
            b"content",
            "the file is open with the requested access"
        );
    }
}

fn new_file_becomes_durable_despite_its_mode(fixture: &Fixture) {
    let root = fixture.root();
    let sync = |ids: &[FileId]| fixture.sync(ids);
    let file =
        fixture.create(&root, "file", CreateHow::Guarded, &mode(0)).expect("creation succeeds").id;
    sync(&[file, root]);
    let made = |name_of: &str, node| {
        fixture.make(&root, name_of, node, &mode(0)).expect("creation succeeds").0
    };
    let directory = made("directory", NewNode::Directory);
    sync(&[directory, root]);
    for (name_of, node) in [
        ("link", NewNode::Symlink(b"to nowhere")),
        ("pipe", NewNode::Fifo),
        ("socket", NewNode::Socket),
    ] {
        let id = made(name_of, node);
        sync(&[id, root]);
        sync(&[id]);
    }
    fixture.try_remove(&root, "file").expect("the removal succeeds");
    sync(&[file, root]);
}

fn failed_creation_leaves_no_file(fixture: &Fixture) {
    if !fixture.has_callers() {
        return;
    }
    let root = fixture.root();
    fixture.set(&root, mode(0o777));
    let given = SetAttributes { uid: Some(1), ..mode(0o644) };
    refused!(
        fixture.create_as(&alice(), &root, "a", CreateHow::Guarded, &given),
        Error::Permission,
        "a file for somebody else"
    );
    refused!(
        fixture.fs.make(&alice(), &root, name("d"), NewNode::Directory, &given),
        Error::Permission,
        "a directory for somebody else"
    );
    assert!(fixture.names(&root).is_empty(), "a failed creation leaves no file");
}

fn remove_incomplete_removes_only_the_created_file(fixture: &Fixture) {
    let root = fixture.root();
    let remove_incomplete = |file: &str, id: &FileId| {
        fixture
            .fs
            .remove_incomplete(&fixture.owner, &root, name(file), id)
            .expect("remove_incomplete removes the file or leaves it")
    };
    let file = fixture.file(&root, "a", b"");
    remove_incomplete("a", &file);
    assert!(fixture.names(&root).is_empty(), "the incomplete file is removed");
    refused!(
        fixture.fs.attributes(&file, Blocking::Allowed),
        Error::Stale,
        "the identity of a removed file is stale"
    );
    remove_incomplete("a", &file);
    let directory = fixture.directory(&root, "d", 0o755);
    remove_incomplete("d", &directory);
    assert!(fixture.names(&root).is_empty(), "the incomplete directory is removed");

    let moved = fixture.file(&root, "a", b"moved");
    fixture.rename(&root, "a", &root, "b").expect("the rename succeeds");
    let new = fixture.file(&root, "a", b"new");
    remove_incomplete("a", &moved);
    assert_eq!(
        (fixture.content(&new), fixture.content(&moved)),
        (b"new".to_vec(), b"moved".to_vec()),
        "both files stay"
    );
    let directory = fixture.directory(&root, "d", 0o755);
    fixture.file(&directory, "inside", b"");
    remove_incomplete("d", &directory);
    assert_eq!(fixture.names(&root), ["a", "b", "d"], "only the non-empty directory remains");
    assert_eq!(fixture.names(&directory), ["inside"], "the file is not truncated");
}

fn racing_remove_incomplete_removes_no_other_file(fixture: &Fixture) {
    let root = fixture.root();
    for round in 0..50 {
        let made = fixture.file(&root, "a", b"made");
        let mine = format!("mine{round}");
        let id = fixture.file(&root, &mine, b"mine");
        std::thread::scope(|scope| {
            let (fs, owner, root, mine) = (&fixture.fs, &fixture.owner, &root, &mine);
            let remove_incomplete =
                scope.spawn(move || fs.remove_incomplete(owner, root, name("a"), &made));
            let rename =
                scope.spawn(move || fs.rename(owner, root, name(mine), root, name("a"), None));
            rename.join().expect("no panic").expect("the rename succeeds");
            remove_incomplete
                .join()
                .expect("no panic")
                .expect("remove_incomplete removes the file or leaves it");
        });
        assert_eq!(fixture.content(&id), b"mine", "the replacement stays");
        assert_eq!(
            fixture.names(&root).len(),
            1,
            "the file has its own name, and no other file changed"
        );
        let left = fixture.names(&root).remove(0);
        fixture.remove(&root, &left);
    }
}
