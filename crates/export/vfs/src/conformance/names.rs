use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::fixture::{Fixture, READ, Rule, is_stale, mode, name, refused};
use crate::{Blocking, CreateHow, Error, FileId, FileType, FilesToRename, NewNode, Result};

pub(super) const RULES: &[Rule] = &[
    ("lookup_finds_only_existing_names", lookup_finds_only_existing_names),
    ("identities_survive_renames", identities_survive_renames),
    ("invalid_identity_is_refused", invalid_identity_is_refused),
    ("identities_of_removed_files_are_stale", identities_of_removed_files_are_stale),
    ("hard_links_share_one_file", hard_links_share_one_file),
    ("directories_cannot_be_hard_linked", directories_cannot_be_hard_linked),
    ("rename_replaces_only_same_file_type", rename_replaces_only_same_file_type),
    ("directory_cannot_be_moved_below_itself", directory_cannot_be_moved_below_itself),
    (
        "rename_to_another_link_of_the_file_changes_nothing",
        rename_to_another_link_of_the_file_changes_nothing,
    ),
    ("expected_files_alone_lose_their_names", expected_files_alone_lose_their_names),
    ("only_empty_directories_are_removed", only_empty_directories_are_removed),
    ("parents_lead_to_the_root", parents_lead_to_the_root),
    ("symbolic_links_are_read_and_never_followed", symbolic_links_are_read_and_never_followed),
    ("special_files_are_created_but_not_opened", special_files_are_created_but_not_opened),
    ("racing_renames_lose_no_file", racing_renames_lose_no_file),
    ("lookups_racing_renames_stay_below_root", lookups_racing_renames_stay_below_root),
    ("removal_reports_last_name", removal_reports_last_name),
];

fn lookup_finds_only_existing_names(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&root, "file", b"x");
    let directory = fixture.directory(&root, "directory", 0o755);
    assert_eq!(fixture.found(&root, "file"), file, "lookup finds what creation made");
    assert_eq!(fixture.found(&root, "directory"), directory, "lookup finds what creation made");
    refused!(fixture.lookup(&root, "File"), Error::NotFound, "another name");
    refused!(fixture.lookup(&file, "x"), Error::NotDirectory, "lookup in a file");
    let longest = "n".repeat(fixture.fs.traits().name_len_max as usize);
    let long = fixture.file(&directory, &longest, b"");
    assert_eq!(fixture.found(&directory, &longest), long, "a name of the maximum length is valid");
    let bytes = crate::Name::new(b"\xff\x01 \n*").expect("a name");
    let made = fixture
        .fs
        .make(&fixture.owner, &root, bytes, NewNode::Directory, &mode(0o755))
        .expect("names may be any bytes")
        .0;
    assert_eq!(
        fixture
            .fs
            .lookup(&fixture.owner, &root, bytes, Blocking::Allowed)
            .expect("the file exists")
            .0,
        made,
        "names may be any bytes"
    );
}

fn identities_survive_renames(fixture: &Fixture) {
    let root = fixture.root();
    let (a, b) = (fixture.directory(&root, "a", 0o755), fixture.directory(&root, "b", 0o755));
    let file = fixture.file(&a, "old", b"content");
    fixture.rename(&a, "old", &b, "new").expect("a rename between directories");
    assert_eq!(fixture.content(&file), b"content", "an identity is of the file, not of its name");
    assert_eq!(fixture.found(&b, "new"), file, "a renamed file keeps its identity");
    refused!(fixture.lookup(&a, "old"), Error::NotFound, "looking up the old name");
    fixture.rename(&root, "b", &a, "b").expect("a directory can be renamed");
    assert_eq!(
        fixture.content(&file),
        b"content",
        "an identity survives the rename of a parent directory"
    );
    assert_eq!(
        fixture.parent(&b).expect("below the root"),
        a,
        "a moved directory has its new parent"
    );
}

fn invalid_identity_is_refused(fixture: &Fixture) {
    let root = fixture.root();
    let mut bytes = root.as_bytes().to_vec();
    let ask = |bytes: &[u8]| {
        fixture.fs.attributes(&FileId::new(bytes).expect("short"), Blocking::Allowed)
    };
    refused!(ask(&[]), Error::BadId | Error::Stale, "no bytes");
    refused!(ask(&[0xff; crate::FILE_ID_LEN_MAX]), Error::BadId | Error::Stale, "arbitrary bytes");
    refused!(ask(&bytes[..bytes.len() - 1]), Error::BadId | Error::Stale, "an identity cut short");
    bytes[0] ^= 0x40;
    refused!(ask(&bytes), Error::BadId | Error::Stale, "an identity of another kind");
}

/// A process that another thread forks has the file open until it executes its program.
fn becomes_stale<T>(ask: impl Fn() -> Result<T>) -> bool {
    let asked_again = || {
        std::thread::sleep(Duration::from_millis(10));
        is_stale(&ask())
    };
    is_stale(&ask()) || (0..1000).any(|_| asked_again())
}

fn identities_of_removed_files_are_stale(fixture: &Fixture) {
    let root = fixture.root();
    for round in 0..3 {
        let file = fixture.file(&root, "file", b"x");
        let directory = fixture.directory(&root, "directory", 0o755);
        fixture.remove(&root, "file");
        fixture.remove(&root, "directory");
        let attributes =
            |id: &FileId| becomes_stale(|| fixture.fs.attributes(id, Blocking::Allowed));
        assert!(attributes(&file), "round {round}: a removed file is stale");
        assert!(attributes(&directory), "round {round}: a removed directory is stale");
        assert!(
            is_stale(&fixture.try_open(&file, READ)),
            "round {round}: a removed file can't be opened"
        );
        let next = fixture.file(&root, "file", b"y");
        assert_ne!(next, file, "round {round}: no file gets the identity of one that was removed");
        assert!(
            is_stale(&fixture.fs.attributes(&file, Blocking::Allowed)),
            "round {round}: even when its number is used again"
        );
        fixture.remove(&root, "file");
    }
}

fn hard_links_share_one_file(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&root, "a", b"content");
    let before = fixture.change(&file);
    fixture.link(&file, &root, "b").expect("a file can be linked");
    assert_eq!(fixture.found(&root, "b"), file, "a link is the same file");
    let attributes = fixture.attributes(&file);
    assert_eq!(attributes.links, 2, "links are counted");
    assert_ne!(attributes.change, before, "a link is a change of the file");
    refused!(fixture.link(&file, &root, "b"), Error::Exists, "a name that is taken");
    assert_eq!(fixture.remove(&root, "a"), None, "a file with another name stays");
    assert_eq!(fixture.content(&file), b"content", "the file is found by its identity");
    assert_eq!(fixture.remove(&root, "b"), Some(file), "removing the last name removes the file");
}

fn directories_cannot_be_hard_linked(fixture: &Fixture) {
    let root = fixture.root();
    let directory = fixture.directory(&root, "a", 0o755);
    refused!(
        fixture.link(&directory, &root, "b"),
        Error::Permission | Error::IsDirectory,
        "a link to a directory"
    );
}

fn rename_replaces_only_same_file_type(fixture: &Fixture) {
    let root = fixture.root();
    let rename = |from: &str, to: &str| fixture.rename(&root, from, &root, to);
    let (one, two) = (fixture.file(&root, "one", b"1"), fixture.file(&root, "two", b"2"));
    let (empty, full) =
        (fixture.directory(&root, "empty", 0o755), fixture.directory(&root, "full", 0o755));
    fixture.file(&full, "x", b"");
    refused!(rename("one", "empty"), Error::IsDirectory | Error::Exists, "a file over a directory");
    refused!(
        rename("empty", "one"),
        Error::NotDirectory | Error::Exists,
        "a directory over a file"
    );
    refused!(
        rename("empty", "full"),
        Error::NotEmpty | Error::Exists,
        "over a directory that is not empty"
    );
    refused!(rename("missing", "one"), Error::NotFound, "a missing name");
    assert_eq!(
        rename("one", "two").expect("a file over a file").replaced,
        Some(two),
        "the rename reports the replaced file"
    );
    assert_eq!(fixture.found(&root, "two"), one, "the name leads to the renamed file");
    assert_eq!(
        rename("full", "empty").expect("over an empty directory").replaced,
        Some(empty),
        "the rename reports the replaced file"
    );
    assert_eq!(fixture.found(&root, "empty"), full, "the name leads to the renamed directory");
    let linked = fixture.file(&root, "linked", b"");
    fixture.link(&linked, &root, "other").expect("a link");
    assert_eq!(
        rename("two", "linked").expect("a file over a link").replaced,
        None,
        "a replaced file with another name stays"
    );
}

fn directory_cannot_be_moved_below_itself(fixture: &Fixture) {
    let root = fixture.root();
    let a = fixture.directory(&root, "a", 0o755);
    let b = fixture.directory(&a, "b", 0o755);
    refused!(
        fixture.rename(&root, "a", &b, "c"),
        Error::Invalid,
        "moving a directory below its child"
    );
    refused!(fixture.rename(&root, "a", &a, "c"), Error::Invalid, "below itself");
    refused!(
        fixture.rename(&a, "b", &root, "a"),
        Error::NotEmpty | Error::Exists,
        "moving a directory over its parent"
    );
}

fn rename_to_another_link_of_the_file_changes_nothing(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&root, "a", b"");
    fixture.link(&file, &root, "b").expect("a link");
    let renamed =
        fixture.rename(&root, "a", &root, "b").expect("POSIX: does nothing, successfully");
    assert_eq!(renamed.replaced, None, "no file is removed");
    assert_eq!(fixture.names(&root), ["a", "b"], "both names stay");
}

fn expected_files_alone_lose_their_names(fixture: &Fixture) {
    let (root, fs, owner) = (fixture.root(), &fixture.fs, &fixture.owner);
    let [a, b, c] = ["a", "b", "c"].map(|new| fixture.file(&root, new, b""));
    let rename = |old: &str, new: &str, moved: FileId, replaced: Option<FileId>| {
        let expected = FilesToRename { moved, replaced };
        fs.rename(owner, &root, name(old), &root, name(new), Some(&expected))
    };
    refused!(fs.remove(owner, &root, name("a"), Some(&b)), Error::NameChanged, "another file");
    refused!(rename("a", "b", c, Some(b)), Error::NameChanged, "another file to move");
    refused!(rename("a", "b", a, Some(c)), Error::NameChanged, "another file to replace");
    refused!(rename("a", "b", a, None), Error::NameChanged, "a new file to replace");
    refused!(rename("a", "new", a, Some(b)), Error::NameChanged, "no file to replace");
    assert_eq!(fixture.names(&root), ["a", "b", "c"], "refused changes have no effect");
    refused!(fs.remove(owner, &root, name("gone"), Some(&a)), Error::NotFound, "no file");
    refused!(rename("gone", "b", a, Some(b)), Error::NotFound, "no file to move");
    rename("a", "b", a, Some(b)).expect("these files have the names");
    rename("b", "new", a, None).expect("the new name is free");
    fs.remove(owner, &root, name("new"), Some(&a)).expect("this file has the name");
    assert_eq!(fixture.names(&root), ["c"]);
}

fn only_empty_directories_are_removed(fixture: &Fixture) {
    let root = fixture.root();
    let directory = fixture.directory(&root, "directory", 0o755);
    fixture.file(&directory, "x", b"");
    refused!(
        fixture.try_remove(&root, "directory"),
        Error::NotEmpty | Error::Exists,
        "a directory that is not empty"
    );
    refused!(fixture.try_remove(&root, "missing"), Error::NotFound, "a missing name");
    fixture.remove(&directory, "x");
    assert_eq!(
        fixture.remove(&root, "directory"),
        Some(directory),
        "removing the name removes the directory"
    );
    let create = fixture.create(&directory, "y", CreateHow::Guarded, &mode(0o644));
    refused!(create, Error::Stale | Error::NotFound, "creation in a removed directory");
}

fn parents_lead_to_the_root(fixture: &Fixture) {
    let root = fixture.root();
    let a = fixture.directory(&root, "a", 0o755);
    let b = fixture.directory(&a, "b", 0o755);
    assert_eq!(fixture.parent(&b).expect("below the root"), a, "parent of b");
    assert_eq!(fixture.parent(&a).expect("below the root"), root, "parent of a");
    refused!(fixture.parent(&root), Error::NotFound, "the root has no parent");
    let file = fixture.file(&a, "file", b"");
    refused!(fixture.parent(&file), Error::NotDirectory, "a file has no unique parent");
}

fn symbolic_links_are_read_and_never_followed(fixture: &Fixture) {
    let root = fixture.root();
    for (new, target) in [
        ("etc", &b"/etc"[..]),
        ("up", b"../../.."),
        ("here", b"."),
        ("self", b"self"),
        ("bytes", b"\xff/ x"),
    ] {
        let id = fixture.symlink(&root, new, target);
        assert_eq!(
            fixture
                .fs
                .read_link(&fixture.owner, &id, Blocking::Allowed)
                .expect("a link can be read"),
            target,
            "{new}"
        );
        assert_eq!(fixture.found(&root, new), id, "lookup finds the link itself");
        assert_eq!(fixture.attributes(&id).file_type, FileType::Symlink, "{new}");
        refused!(
            fixture.lookup(&id, "passwd"),
            Error::NotDirectory | Error::IsSymlink,
            "lookup through {new}"
        );
        refused!(fixture.try_open(&id, READ), Error::IsSymlink, "opening {new}");
        let made = fixture.create(&id, "x", CreateHow::Guarded, &mode(0o644));
        refused!(made, Error::NotDirectory | Error::IsSymlink, "creation through {new}");
    }
    let unchecked = fixture.create(&root, "etc", CreateHow::Unchecked, &mode(0o644));
    refused!(unchecked, Error::IsSymlink, "creation does not follow symbolic links");
    let file = fixture.file(&root, "file", b"");
    refused!(
        fixture.fs.read_link(&fixture.owner, &file, Blocking::Allowed),
        Error::Invalid,
        "a file is no link"
    );
}

fn special_files_are_created_but_not_opened(fixture: &Fixture) {
    let root = fixture.root();
    let mut nodes = vec![
        ("fifo", NewNode::Fifo, FileType::Fifo),
        ("socket", NewNode::Socket, FileType::Socket),
    ];
    if fixture.any_caller {
        nodes.push(("null", NewNode::CharDevice(1, 3), FileType::CharDevice));
        nodes.push(("disk", NewNode::BlockDevice(7, 200), FileType::BlockDevice));
    }
    for (new, node, kind) in nodes {
        let (id, attributes, _) = match fixture.make(&root, new, node, &mode(0o600)) {
            Err(Error::Permission)
                if matches!(node, NewNode::CharDevice(..) | NewNode::BlockDevice(..)) =>
            {
                eprintln!("not applicable: this system permits no device files");
                continue;
            }
            made => made.expect("creation succeeds"),
        };
        assert_eq!(attributes.file_type, kind, "{new}");
        if let NewNode::CharDevice(major, minor) | NewNode::BlockDevice(major, minor) = node {
            assert_eq!(attributes.device, (major, minor), "{new}");
        }
        refused!(fixture.try_open(&id, READ), Error::WrongType, "opening {new}");
        let unchecked = fixture.create(&root, new, CreateHow::Unchecked, &mode(0o644));
        refused!(unchecked, Error::WrongType | Error::Exists, "creating {new}");
    }
}

fn racing_renames_lose_no_file(fixture: &Fixture) {
    const ROUNDS: usize = 200;
    let root = fixture.root();
    let (a, b) = (fixture.directory(&root, "a", 0o777), fixture.directory(&root, "b", 0o777));
    let file = fixture.file(&a, "x", b"content");
    let (fs, owner) = (&fixture.fs, &fixture.owner);
    std::thread::scope(|scope| {
        for (from, to) in [(&a, &b), (&b, &a)] {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    match fs.rename(owner, from, name("x"), to, name("x"), None) {
                        Ok(_) | Err(Error::NotFound) => {}
                        Err(error) => panic!("a racing rename fails with {error:?}"),
                    }
                }
            });
        }
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                fs.attributes(&file, Blocking::Allowed)
                    .expect("a file that is being renamed exists");
            }
        });
    });
    let found = [&a, &b]
        .into_iter()
        .filter_map(|directory| fixture.lookup(directory, "x").ok())
        .collect::<Vec<_>>();
    assert_eq!(found, [file], "the file has one name at the end");
}

fn lookups_racing_renames_stay_below_root(fixture: &Fixture) {
    const ROUNDS: usize = 200;
    let root = fixture.root();
    let (a, b) = (fixture.directory(&root, "a", 0o777), fixture.directory(&root, "b", 0o777));
    let moved = fixture.directory(&a, "x", 0o777);
    let below = fixture.directory(&moved, "y", 0o777);
    let (fs, owner, stop) = (&fixture.fs, &fixture.owner, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..ROUNDS {
                let (from, to) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
                fs.rename(owner, from, name("x"), to, name("x"), None)
                    .expect("no other thread renames");
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            match fs.parent(owner, &moved, Blocking::Allowed) {
                Ok(parent) => assert!(
                    parent == a || parent == b,
                    "parent returns the present or the former parent"
                ),
                Err(Error::Busy | Error::Stale) => {}
                Err(error) => panic!("parent fails with {error:?}"),
            }
            match fs.parent(owner, &below, Blocking::Allowed) {
                Ok(parent) => assert_eq!(parent, moved, "a moved parent stays the parent"),
                Err(Error::Busy | Error::Stale) => {}
                Err(error) => panic!("parent fails with {error:?}"),
            }
        }
    });
}

fn removal_reports_last_name(fixture: &Fixture) {
    let root = fixture.root();
    let link = fixture.symlink(&root, "link", b"x");
    assert_eq!(
        fixture.remove(&root, "link"),
        Some(link),
        "removing the only name removes a symbolic link"
    );
    let file = fixture.file(&root, "file", b"");
    let open = fixture.open(&file, READ);
    assert_eq!(
        fixture.remove(&root, "file"),
        Some(file),
        "the last name is reported even if the file is open"
    );
    drop(open);
}
