use super::fixture::{BOTH, Fixture, Rule, mode, refused, write};
use crate::{
    Blocking, CreateHow, Error, FileType, NewNode, PosixAclKind, SetAttributes, SetTime, Time,
    XattrHow,
};

pub(super) const RULES: &[Rule] = &[
    ("attributes_describe_the_file", attributes_describe_the_file),
    ("modes_are_set_and_masked", modes_are_set_and_masked),
    ("every_change_moves_the_change_attribute", every_change_moves_the_change_attribute),
    ("directory_changes_report_before_and_after", directory_changes_report_before_and_after),
    ("free_space_is_reported", free_space_is_reported),
    ("paths_are_reported", paths_are_reported),
    ("xattrs_are_stored", xattrs_are_stored),
];

fn attributes_describe_the_file(fixture: &Fixture) {
    let root = fixture.root();
    let file = fixture.file(&root, "file", &[1; 5000]);
    let of_file = fixture.attributes(&file);
    assert_eq!(
        (of_file.file_type, of_file.mode, of_file.links, of_file.size),
        (FileType::Regular, 0o644, 1, 5000),
        "a file"
    );
    assert_eq!(
        (of_file.uid, of_file.gid),
        (fixture.owner.uid, fixture.owner.gid),
        "the file belongs to its creator"
    );
    let directory = fixture.directory(&root, "directory", 0o750);
    let of_directory = fixture.attributes(&directory);
    assert_eq!(
        (of_directory.file_type, of_directory.mode),
        (FileType::Directory, 0o750),
        "a directory"
    );
    assert_ne!(of_file.file_number, of_directory.file_number, "each file has its own number");
    assert_eq!(of_file.fsid, of_directory.fsid, "both lie on one file system");
    assert_eq!(of_file, fixture.attributes(&file), "unchanged attributes stay");
    assert_eq!(
        of_file,
        fixture.open(&file, BOTH).attributes().expect("the file is open"),
        "an open file reports the same attributes"
    );
}

fn modes_are_set_and_masked(fixture: &Fixture) {
    let file = fixture.file(&fixture.root(), "file", b"");
    fixture.set(&file, mode(0o4755));
    assert_eq!(fixture.attributes(&file).mode, 0o4755, "twelve bits");
    fixture.set(
        &file,
        SetAttributes { mode: Some(0o007), mode_mask: Some(0o077), ..SetAttributes::default() },
    );
    assert_eq!(fixture.attributes(&file).mode, 0o4707, "only the mode bits of the mask are set");
}

fn every_change_moves_the_change_attribute(fixture: &Fixture) {
    let root = fixture.root();
    let directory = fixture.directory(&root, "d", 0o755);
    let file = fixture.file(&directory, "file", b"");
    let open = fixture.open(&file, BOTH);
    let mut last = fixture.change(&file);
    let mut moved = |what: &str| {
        let now = fixture.change(&file);
        assert!(now > last, "{what} moves the change attribute upward: {last} to {now}");
        last = now;
    };
    // Many changes within one tick of a coarse clock.
    for round in 0..50u64 {
        write(&*open, 0, b"x");
        moved("a write");
        fixture.set(&file, mode(if round % 2 == 0 { 0o600 } else { 0o644 }));
        moved("a mode");
        open.truncate(round).expect("open for writing");
        moved("a truncation");
    }
    let then = Some(SetTime::To(Time { seconds: 1, nanos: 2 }));
    fixture
        .set(&file, SetAttributes { accessed: then, modified: then, ..SetAttributes::default() });
    moved("setting times");
    fixture.link(&file, &directory, "link").expect("a link");
    moved("a link");
    fixture.remove(&directory, "link");
    moved("losing a link");
    if fixture.fs.traits().xattrs {
        fixture
            .fs
            .set_xattr(&fixture.owner, &file, b"x", b"y", XattrHow::Either)
            .expect("an xattr");
        moved("an xattr");
    }
    if fixture.fs.traits().acls {
        let acl = super::acls::for_user(7);
        fixture.fs.set_acl(&fixture.owner, &file, PosixAclKind::Access, &acl).expect("an ACL");
        moved("an ACL");
    }
    let mut last = fixture.change(&directory);
    for round in 0..50 {
        let made = format!("file{round}");
        fixture.file(&directory, &made, b"");
        let now = fixture.change(&directory);
        assert!(now > last, "a new name moves the directory's change attribute");
        last = now;
        fixture.remove(&directory, &made);
        let now = fixture.change(&directory);
        assert!(now > last, "a removal moves the directory's change attribute");
        last = now;
    }
}

fn directory_changes_report_before_and_after(fixture: &Fixture) {
    let root = fixture.root();
    let (a, b) = (fixture.directory(&root, "a", 0o755), fixture.directory(&root, "b", 0o755));
    let (mut of_a, mut of_b) = (fixture.change(&a), fixture.change(&b));
    let check = |what: &str, reported: crate::DirectoryChange, before: &mut u64, after: u64| {
        assert_eq!(
            (reported.before, reported.after),
            (*before, after),
            "{what}: the change attribute before and after"
        );
        assert_ne!(reported.before, reported.after, "{what}: it moves");
        *before = after;
    };
    let made =
        fixture.create(&a, "x", CreateHow::Guarded, &mode(0o644)).expect("creation succeeds");
    check("create", made.directory, &mut of_a, fixture.change(&a));
    let found =
        fixture.create(&a, "x", CreateHow::Unchecked, &mode(0o644)).expect("opening succeeds");
    assert_eq!(
        found.directory.before, found.directory.after,
        "opening an existing file does not change the directory"
    );
    let directory =
        fixture.make(&a, "d", NewNode::Directory, &mode(0o755)).expect("creation succeeds");
    check("make", directory.2, &mut of_a, fixture.change(&a));
    let linked = fixture.link(&made.id, &a, "y").expect("the link succeeds");
    check("link", linked, &mut of_a, fixture.change(&a));
    let renamed = fixture.rename(&a, "y", &b, "y").expect("the rename succeeds");
    check("rename, from", renamed.from, &mut of_a, fixture.change(&a));
    check("rename, to", renamed.to, &mut of_b, fixture.change(&b));
    let removed = fixture.try_remove(&a, "x").expect("the removal succeeds");
    check("remove", removed.0, &mut of_a, fixture.change(&a));
}

fn free_space_is_reported(fixture: &Fixture) {
    let space = fixture
        .fs
        .space(&fixture.owner, &fixture.root(), Blocking::Allowed)
        .expect("the value is reported");
    assert!(space.bytes_total >= space.bytes_free && space.bytes_total > 0, "bytes: {space:?}");
    assert!(space.files_total >= space.files_free, "files: {space:?}");
}

fn paths_are_reported(fixture: &Fixture) {
    let root = fixture.root();
    let directory = fixture.directory(&fixture.directory(&root, "a", 0o755), "b", 0o755);
    if let Some(path) = fixture.fs.path(&directory) {
        assert_eq!(path, b"a/b", "a path starts below the root");
    }
    if let Some(path) = fixture.fs.path(&root) {
        assert_eq!(path, b"", "the root's path is empty");
    }
}

fn xattrs_are_stored(fixture: &Fixture) {
    if !fixture.fs.traits().xattrs {
        return;
    }
    let root = fixture.root();
    for id in [fixture.file(&root, "file", b""), fixture.directory(&root, "directory", 0o755)] {
        let (fs, owner) = (&fixture.fs, &fixture.owner);
        assert!(
            fs.xattrs(owner, &id, Blocking::Allowed).expect("listing succeeds").is_empty(),
            "a new file has no xattrs"
        );
        fs.set_xattr(owner, &id, b"one", b"1", XattrHow::Create).expect("no entry exists");
        fs.set_xattr(owner, &id, b"a.b", b"", XattrHow::Either).expect("an empty value");
        assert_eq!(
            fs.xattrs(owner, &id, Blocking::Allowed).expect("listing succeeds"),
            [b"a.b", b"one"],
            "sorted, without a prefix"
        );
        assert_eq!(
            fs.xattr(owner, &id, b"one", Blocking::Allowed).expect("the file exists"),
            b"1",
            "the stored value is returned"
        );
        assert_eq!(
            fs.xattr(owner, &id, b"a.b", Blocking::Allowed).expect("the file exists"),
            b"",
            "an empty value"
        );
        refused!(
            fs.set_xattr(owner, &id, b"one", b"2", XattrHow::Create),
            Error::Exists,
            "creating an existing xattr"
        );
        refused!(
            fs.set_xattr(owner, &id, b"two", b"2", XattrHow::Replace),
            Error::NoXattr,
            "replacing a missing xattr"
        );
        fs.set_xattr(owner, &id, b"one", &[9; 2000], XattrHow::Replace).expect("the file exists");
        assert_eq!(
            fs.xattr(owner, &id, b"one", Blocking::Allowed).expect("the file exists"),
            [9; 2000],
            "the new value"
        );
        fs.remove_xattr(owner, &id, b"one").expect("the file exists");
        refused!(fs.remove_xattr(owner, &id, b"one"), Error::NoXattr, "removing an xattr twice");
        refused!(
            fs.xattr(owner, &id, b"one", Blocking::Allowed),
            Error::NoXattr,
            "reading a removed xattr"
        );
        refused!(fs.set_xattr(owner, &id, b"", b"x", XattrHow::Either), Error::Invalid, "no name");
        refused!(
            fs.set_xattr(owner, &id, &[b'n'; 300], b"x", XattrHow::Either),
            Error::NameTooLong | Error::Invalid,
            "a long name"
        );
        let large = fs.set_xattr(owner, &id, b"large", &vec![0; 1 << 17], XattrHow::Either);
        refused!(large, Error::XattrTooLarge | Error::NoSpace, "a value beyond all limits");
    }
}
