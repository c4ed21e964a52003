use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use vouch_vfs::{
    Access, AccessOverride, Blocking, Caller, CreateHow, Error, FileId, FileSystem, FileType, Name,
    NewNode, OpenAccess, PosixAclKind, PosixAclTag, SeekTarget, SetAttributes, XattrHow,
};

use crate::fixture::{ExportedTree, Site, random_bytes, read};

fn compare(exported: &ExportedTree, site: &Site, path: &str, id: &FileId) {
    let found = exported.fs.attributes(id, Blocking::Allowed).unwrap();
    let source = fs::symlink_metadata(site.source(path)).unwrap();
    assert_eq!(u32::from(found.mode), source.mode() & 0o7777, "{path}");
    assert_eq!(
        (found.uid, found.gid, found.modified.seconds),
        (source.uid(), source.gid(), source.mtime()),
        "{path}"
    );
    let kind = match found.file_type {
        FileType::Directory => 0o040_000,
        FileType::Regular => 0o100_000,
        FileType::Symlink => 0o120_000,
        FileType::Fifo => 0o010_000,
        FileType::Socket => 0o140_000,
        FileType::BlockDevice => 0o060_000,
        FileType::CharDevice => 0o020_000,
    };
    assert_eq!(kind, source.mode() & 0o170_000, "{path}");
    match found.file_type {
        FileType::Regular => {
            assert_eq!(
                (found.size, u64::from(found.links)),
                (source.size(), source.nlink()),
                "{path}"
            );
            assert!(
                exported.content(id).unwrap() == fs::read(site.source(path)).unwrap(),
                "{path}"
            );
        }
        FileType::Symlink => {
            let target = fs::read_link(site.source(path)).unwrap();
            assert_eq!(
                exported.fs.read_link(&Caller::root(), id, Blocking::Allowed).unwrap(),
                target.as_os_str().as_encoded_bytes()
            );
        }
        FileType::Directory => {
            let mut names: Vec<_> = fs::read_dir(site.source(path))
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            let mut listed = Vec::new();
            let end = exported.fs.read_directory(
                &Caller::root(),
                id,
                0,
                true,
                Blocking::Allowed,
                &mut |entry| {
                    let (child, attributes) = entry.file.unwrap().unwrap();
                    assert_eq!(attributes.file_number, entry.file_number);
                    listed.push((
                        String::from_utf8(entry.name.to_vec()).unwrap(),
                        child,
                        attributes,
                    ));
                    std::ops::ControlFlow::Continue(())
                },
            );
            assert!(end.unwrap());
            assert!(names.iter().eq(listed.iter().map(|(name, ..)| name)), "{path}");
            for (name, child, attributes) in listed {
                let found = exported
                    .fs
                    .lookup(
                        &Caller::root(),
                        id,
                        Name::new(name.as_bytes()).unwrap(),
                        Blocking::Allowed,
                    )
                    .unwrap();
                assert_eq!(found, (child, attributes));
                if attributes.file_type == FileType::Directory {
                    assert_eq!(
                        exported.fs.parent(&Caller::root(), &child, Blocking::Allowed).unwrap(),
                        *id
                    );
                }
                compare(exported, site, Path::new(path).join(name).to_str().unwrap(), &child);
            }
        }
        _ => {}
    }
}

#[test]
fn all_published_files_are_shown() {
    let site = Site::new();
    for len in [0, 1, 32, 33, 900, 5000, 131_072, 131_073, 2_000_000] {
        site.write(format!("files/{len}"), random_bytes(len as u64, len));
    }
    fs::hard_link(site.source("files/900"), site.source("files/linked")).unwrap();
    fs::hard_link(site.source("files/900"), site.source("second name")).unwrap();
    symlink("../anywhere", site.source("files/link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        site.source("pipe"),
        rustix::fs::FileType::Fifo,
        0o640.into(),
        0,
    )
    .unwrap();
    fs::create_dir_all(site.source("empty/below")).unwrap();
    fs::set_permissions(site.source("files/1"), fs::Permissions::from_mode(0o4751)).unwrap();
    site.publish();
    let exported = site.export();
    vouch_vfs::conformance::check_read_only(&exported.fs, &Caller::root());
    compare(&exported, &site, "", &exported.fs.root());
    let number = |path| exported.find(path).unwrap().1.file_number;
    assert_eq!(number("files/900"), number("second name"));
    assert_ne!(number("files/900"), number("files/1"));
    let space = exported.fs.space(&Caller::root(), &exported.fs.root(), Blocking::Allowed).unwrap();
    assert!(space.bytes_total > 2_000_000 && space.bytes_free == 0 && space.files_total > 10);
    assert!(matches!(
        exported.fs.parent(&Caller::root(), &exported.fs.root(), Blocking::Allowed),
        Err(Error::NotFound)
    ));
    assert!(matches!(exported.find("files/none"), Err(Error::NotFound)));
    assert!(matches!(exported.find("second name/x"), Err(Error::NotDirectory)));
}

#[test]
fn reads_end_at_file_end_and_holes_are_found() {
    let site = Site::new();
    let file = fs::File::create(site.source("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", 1 << 20).unwrap();
    file.set_len(4 << 20).unwrap();
    site.write("small", b"0123456789");
    site.publish();
    let exported = site.export();
    let open = exported.open(&exported.id("small")).unwrap();
    for (offset, len, expected) in [
        (0, 10, (10, true)),
        (0, 9, (9, false)),
        (8, 10, (2, true)),
        (10, 1, (0, true)),
        (u64::MAX, 9, (0, true)),
    ] {
        assert_eq!(
            read(&*open, offset, len, &mut Vec::new(), Blocking::Allowed).unwrap(),
            expected
        );
    }
    assert!(matches!(open.seek(10, SeekTarget::Data), Err(Error::NoSuchRegion)));
    assert_eq!(open.seek(3, SeekTarget::Hole).unwrap(), 10);
    let open = exported.open(&exported.id("sparse")).unwrap();
    assert_eq!(open.seek(0, SeekTarget::Data).unwrap(), 1 << 20);
    assert_eq!(open.seek(0, SeekTarget::Hole).unwrap(), 0);
    assert!(open.seek(1 << 20, SeekTarget::Hole).unwrap() < 2 << 20);
}

#[test]
fn rights_follow_mode_and_acl_of_each_caller() {
    let site = Site::new();
    site.write("closed/file", b"x");
    site.write("file", b"x");
    site.write("run", b"x");
    fs::set_permissions(site.source("run"), fs::Permissions::from_mode(0o711)).unwrap();
    let file = site.source("file");
    let (owner, group) = (fs::metadata(&file).unwrap().uid(), fs::metadata(&file).unwrap().gid());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    // Owner rw-, user 4242 r--, group ---, mask r--, others ---.
    let entries = [
        (1u16, 6u16, u32::MAX),
        (2, 4, 4242),
        (4, 0, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        acl.extend(tag.to_le_bytes().into_iter().chain(bits.to_le_bytes()).chain(id.to_le_bytes()));
    }
    let has_acls = rustix::fs::setxattr(
        &file,
        "system.posix_acl_access",
        &acl,
        rustix::fs::XattrFlags::empty(),
    )
    .is_ok();
    let has_xattrs =
        rustix::fs::setxattr(&file, "user.colour", b"blue", rustix::fs::XattrFlags::empty())
            .is_ok();
    fs::set_permissions(site.source("closed"), fs::Permissions::from_mode(0o744)).unwrap();
    site.publish();
    let exported = site.export();
    let (id, closed, all) = (exported.id("file"), exported.id("closed"), Access(0x1ff));
    let stranger = Caller::new(owner + 99, group + 99, []);
    let reads = Access::READ | Access::XATTR_READ | Access::XATTR_LIST;
    assert_eq!(
        exported.fs.access(&Caller::new(owner, group, []), &id, all, Blocking::Allowed).unwrap(),
        reads
    );
    assert_eq!(
        exported.fs.access(&stranger, &id, all, Blocking::Allowed).unwrap(),
        Access::default()
    );
    let open = |caller: &Caller| {
        exported.fs.open(
            caller,
            &id,
            OpenAccess { read: true, write: false },
            AccessOverride::None,
            Blocking::Allowed,
        )
    };
    assert!(matches!(open(&stranger), Err(Error::Access)) && open(&Caller::root()).is_ok());
    let executed = |over| {
        exported
            .fs
            .open(
                &stranger,
                &exported.id("run"),
                OpenAccess { read: true, write: false },
                over,
                Blocking::Allowed,
            )
            .is_ok()
    };
    assert!(
        executed(AccessOverride::Owner)
            && executed(AccessOverride::Execute)
            && !executed(AccessOverride::None)
    );
    if has_acls {
        let named = Caller::new(4242, group + 99, []);
        assert_eq!(exported.fs.access(&named, &id, all, Blocking::Allowed).unwrap(), reads);
        assert!(open(&named).is_ok());
        let acl = exported.fs.acl(&stranger, &id, PosixAclKind::Access, Blocking::Allowed).unwrap();
        assert_eq!(
            (acl.entries.len(), acl.entries[1].tag, acl.entries[1].permissions),
            (5, PosixAclTag::User(4242), 4)
        );
    }
    assert!(
        exported
            .fs
            .acl(&stranger, &closed, PosixAclKind::Default, Blocking::Allowed)
            .unwrap()
            .entries
            .is_empty()
    );
    if has_xattrs {
        assert_eq!(
            exported.fs.xattrs(&Caller::root(), &id, Blocking::Allowed).unwrap(),
            [b"colour"]
        );
        assert_eq!(
            exported.fs.xattr(&Caller::root(), &id, b"colour", Blocking::Allowed).unwrap(),
            b"blue"
        );
        assert!(matches!(
            exported.fs.xattr(&stranger, &id, b"colour", Blocking::Allowed),
            Err(Error::Access)
        ));
    }
    assert!(matches!(
        exported.fs.xattr(&Caller::root(), &id, b"none", Blocking::Allowed),
        Err(Error::NoXattr)
    ));
    let mut seen = 0;
    let each = &mut |entry: vouch_vfs::DirectoryEntry<'_>| {
        assert!(matches!(entry.file, Some(Err(Error::Access))));
        seen += 1;
        std::ops::ControlFlow::Continue(())
    };
    assert!(
        exported.fs.read_directory(&stranger, &closed, 0, true, Blocking::Allowed, each).unwrap()
    );
    assert_eq!(seen, 1);
    let name = Name::new(b"file").unwrap();
    assert!(matches!(
        exported.fs.lookup(&stranger, &closed, name, Blocking::Allowed),
        Err(Error::Access)
    ));
}

#[test]
fn nothing_can_be_changed() {
    let site = Site::new();
    site.write("file", b"x");
    site.publish();
    let exported = site.export();
    let (fs, root, id, caller, set) = (
        &exported.fs,
        exported.fs.root(),
        exported.id("file"),
        Caller::root(),
        SetAttributes::default(),
    );
    let (there, new) = (Name::new(b"file").unwrap(), Name::new(b"new").unwrap());
    let (reading, writing) =
        (OpenAccess { read: true, write: false }, OpenAccess { read: true, write: true });
    assert!(matches!(
        fs.open(&caller, &id, writing, AccessOverride::Owner, Blocking::Allowed),
        Err(Error::ReadOnly)
    ));
    assert!(matches!(
        fs.create(&caller, &root, new, CreateHow::Unchecked, &set, reading),
        Err(Error::ReadOnly)
    ));
    assert!(matches!(
        fs.create(&caller, &root, there, CreateHow::Unchecked, &set, writing),
        Err(Error::ReadOnly)
    ));
    assert!(matches!(
        fs.create(&caller, &root, there, CreateHow::Guarded, &set, reading),
        Err(Error::Exists)
    ));
    let found = fs.create(&caller, &root, there, CreateHow::Unchecked, &set, reading).unwrap();
    assert!(!found.new && found.id == id && found.directory.before == found.directory.after);
    assert!(matches!(fs.make(&caller, &root, new, NewNode::Directory, &set), Err(Error::ReadOnly)));
    assert!(matches!(fs.make(&caller, &root, there, NewNode::Directory, &set), Err(Error::Exists)));
    assert!(matches!(fs.link(&caller, &id, &root, new), Err(Error::ReadOnly)));
    assert!(matches!(fs.remove(&caller, &root, there, None), Err(Error::ReadOnly)));
    assert!(matches!(fs.remove(&caller, &id, there, None), Err(Error::NotDirectory)));
    assert!(matches!(fs.rename(&caller, &root, there, &root, new, None), Err(Error::ReadOnly)));
    assert!(matches!(fs.set_attributes(&caller, &id, None, &set), Err(Error::ReadOnly)));
    assert!(matches!(
        fs.set_xattr(&caller, &id, b"a", b"b", XattrHow::Either),
        Err(Error::ReadOnly)
    ));
    assert!(matches!(found.open.truncate(0), Err(Error::Access)));
    assert!(matches!(exported.open(&root), Err(Error::IsDirectory)));
    fs.sync_metadata(&[root, id], Blocking::Forbidden).unwrap();
}
