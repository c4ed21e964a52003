use std::ops::ControlFlow;

use super::fixture::{BOTH, READ, mode, name, read, refused};
use crate::{
    AccessOverride, Attributes, Blocking, Caller, CreateHow, Error, FileId, FileSystem, FileType,
    Name, NewNode, PosixAcl, PosixAclKind, SetAttributes, XattrHow,
};

/// `caller` may read all of the file system.
///
/// # Panics
///
/// If a rule does not hold.
pub fn check_read_only(fs: &dyn FileSystem, caller: &Caller) {
    assert!(fs.traits().read_only, "the traits report a read-only file system");
    let root = fs.root();
    let at_root = fs.attributes(&root, Blocking::Allowed).expect("the root exists");
    assert_eq!(at_root.file_type, FileType::Directory, "the root is a directory");
    refused!(
        fs.parent(caller, &root, Blocking::Allowed),
        Error::NotFound,
        "the root has no parent"
    );
    let bad = fs.attributes(&FileId::new(b"no identity").expect("short"), Blocking::Allowed);
    refused!(bad, Error::BadId | Error::Stale, "arbitrary bytes");
    let mut waiting = vec![root];
    while let Some(directory) = waiting.pop() {
        changes_are_refused(fs, caller, &directory);
        for (name, id, attributes) in entries(fs, caller, &directory) {
            let name = Name::new(&name).expect("a listed entry has a valid name");
            assert_eq!(
                fs.lookup(caller, &directory, name, Blocking::Allowed)
                    .expect("a listed entry is found by look-up"),
                (id, attributes),
                "{name:?}"
            );
            assert_eq!(
                fs.attributes(&id, Blocking::Allowed).expect("a found file exists"),
                attributes,
                "{name:?}"
            );
            match attributes.file_type {
                FileType::Directory => {
                    assert_eq!(
                        fs.parent(caller, &id, Blocking::Allowed).expect("below the root"),
                        directory,
                        "{name:?}: its parent"
                    );
                    waiting.push(id);
                }
                FileType::Regular => file(fs, caller, &id, &attributes),
                FileType::Symlink => {
                    let target =
                        fs.read_link(caller, &id, Blocking::Allowed).expect("a link can be read");
                    assert_eq!(
                        target.len() as u64,
                        attributes.size,
                        "{name:?}: the size is the length of the target"
                    );
                }
                _ => refused!(
                    fs.open(caller, &id, READ, AccessOverride::None, Blocking::Allowed),
                    Error::WrongType,
                    "{name:?}: opening"
                ),
            }
        }
        refused!(
            fs.lookup(caller, &directory, name("the name does not exist"), Blocking::Allowed),
            Error::NotFound,
            "a missing name"
        );
    }
}

type Listed = (Vec<u8>, FileId, Attributes);

fn entries(fs: &dyn FileSystem, caller: &Caller, directory: &FileId) -> Vec<Listed> {
    let list = |cookie: u64, count: usize| {
        let (mut listed, mut last) = (Vec::new(), cookie);
        let done =
            fs.read_directory(caller, directory, cookie, true, Blocking::Allowed, &mut |entry| {
                if listed.len() == count {
                    return ControlFlow::Break(());
                }
                assert!(entry.cookie >= 3, "cookies below 3 are reserved");
                let (id, attributes) =
                    entry.file.expect("the option was given").expect("the resource is available");
                assert_eq!(entry.file_number, attributes.file_number, "entry and file agree");
                listed.push((entry.name.to_vec(), id, attributes));
                last = entry.cookie;
                ControlFlow::Continue(())
            });
        (listed, last, done.expect("listing succeeds"))
    };
    let (all, _, done) = list(0, usize::MAX);
    assert!(done, "an uninterrupted listing reaches the end");
    let (mut single, mut cookie) = (Vec::new(), 0);
    loop {
        let (part, last, done) = list(cookie, 1);
        single.extend(part);
        cookie = last;
        if done {
            break;
        }
    }
    assert!(single == all, "listing single entries gives the same result");
    for reserved in [1, 2] {
        let listed =
            fs.read_directory(caller, directory, reserved, false, Blocking::Allowed, &mut |_| {
                ControlFlow::Continue(())
            });
        refused!(listed, Error::BadCookie, "cookie {reserved}");
    }
    all
}

fn file(fs: &dyn FileSystem, caller: &Caller, id: &FileId, attributes: &Attributes) {
    const PIECE_LEN: usize = 100_000;
    let open = fs
        .open(caller, id, READ, AccessOverride::None, Blocking::Allowed)
        .expect("the caller may read all");
    refused!(
        fs.open(caller, id, BOTH, AccessOverride::None, Blocking::Allowed),
        Error::ReadOnly | Error::Access,
        "opening for writing"
    );
    let mut offset = 0;
    loop {
        let (bytes, eof) = read(&*open, offset, PIECE_LEN);
        offset += bytes.len() as u64;
        assert!(bytes.len() == PIECE_LEN || eof, "a read is short only at the end");
        if eof {
            break;
        }
    }
    assert_eq!(offset, attributes.size, "a file has as many bytes as its size");
    assert_eq!(read(&*open, offset, 1), (Vec::new(), true), "a read at the end is empty");
    let set = fs.set_attributes(
        caller,
        id,
        None,
        &SetAttributes { size: Some(0), ..SetAttributes::default() },
    );
    refused!(set, Error::ReadOnly | Error::Access | Error::Permission, "cutting");
    let set = fs.set_xattr(caller, id, b"x", b"y", XattrHow::Either);
    refused!(
        set,
        Error::ReadOnly | Error::Access | Error::Permission | Error::NotSupported,
        "an xattr"
    );
    for name in fs.xattrs(caller, id, Blocking::Allowed).expect("listing succeeds") {
        fs.xattr(caller, id, &name, Blocking::Allowed).expect("a listed entry exists");
    }
}

fn changes_are_refused(fs: &dyn FileSystem, caller: &Caller, directory: &FileId) {
    let new = name("the name does not exist");
    refused!(
        fs.create(caller, directory, new, CreateHow::Guarded, &mode(0o644), BOTH),
        Error::ReadOnly,
        "creating"
    );
    refused!(
        fs.make(caller, directory, new, NewNode::Directory, &mode(0o755)),
        Error::ReadOnly,
        "making"
    );
    refused!(
        fs.remove(caller, directory, new, None),
        Error::ReadOnly | Error::NotFound,
        "removing"
    );
    refused!(
        fs.rename(caller, directory, new, directory, name("other"), None),
        Error::ReadOnly | Error::NotFound,
        "renaming"
    );
    refused!(
        fs.set_attributes(caller, directory, None, &mode(0o700)),
        Error::ReadOnly,
        "setting attributes"
    );
    let acl = fs.set_acl(caller, directory, PosixAclKind::Access, &PosixAcl::default());
    refused!(acl, Error::ReadOnly | Error::NotSupported, "setting an ACL");
}
