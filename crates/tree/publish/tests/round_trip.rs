//! Published directories, read back and compared.

mod reference;

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use reference::{Publisher, is_root, let_timestamps_age};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use vouch_tree::{Content, blob::BlobBody};

#[test]
fn empty_directory_is_a_tree() {
    let publisher = Publisher::new();
    publisher.source();
    let summary = publisher.publish_and_compare();
    assert_eq!((summary.revision, summary.counts.directories, summary.counts.files), (1, 1, 0));
}

#[test]
fn files_of_every_size_class_round_trip() {
    let publisher = Publisher::new();
    let source = publisher.source();
    let leaf = 128 * 1024;
    for size in [
        0,
        1,
        1023,
        1024,
        1025,
        leaf - 1,
        leaf,
        leaf + 1,
        8 * leaf,
        8 * leaf + 1,
        20 * leaf + 77,
        600 * leaf + 5,
    ] {
        let bytes: Vec<u8> =
            (0..size as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(source.join(size.to_string()), bytes).unwrap();
    }
    fs::write(source.join("zeros"), vec![0; 3 * leaf]).unwrap();
    let summary = publisher.publish_and_compare();
    assert_eq!((summary.counts.files, summary.files_read), (13, 13));
    let zeros = publisher.tree().find("zeros").unwrap();
    assert!(
        matches!(zeros.content, Content::Regular { blob, space: 0 } if blob.body == BlobBody::Hole)
    );
}

#[test]
fn sparse_files_keep_holes() {
    let publisher = Publisher::new();
    let source = publisher.source();
    for (name, size, spots) in [
        ("hole", 10u64 << 20, &[][..]),
        ("islands", 3 << 30, &[5u64 << 20, (1 << 30) + 17, (2 << 30) - 1, (3 << 30) - 1]),
        ("terabytes", 4 << 40, &[1 << 40]),
        ("first", 1 << 30, &[0]),
    ] {
        let file = fs::File::create(source.join(name)).unwrap();
        spots.iter().for_each(|at| file.write_all_at(b"x", *at).unwrap());
        file.set_len(size).unwrap();
    }
    let summary = publisher.publish_and_compare();
    assert!(summary.new_bytes < 1 << 20, "{summary:?}");
}

#[test]
fn hard_links_are_one_file_read_once() {
    let publisher = Publisher::new();
    let source = publisher.source();
    for (name, len) in [("small", 10), ("leaves", 300_000), ("large", 5 << 20), ("empty", 0)] {
        fs::write(source.join(name), vec![7; len]).unwrap();
        for n in 0..20 {
            let dir = source.join(format!("dir{n}"));
            fs::create_dir_all(&dir).unwrap();
            fs::hard_link(source.join(name), dir.join(name)).unwrap();
        }
    }
    symlink("small", source.join("link")).unwrap();
    fs::hard_link(source.join("link"), source.join("link-too")).unwrap();
    let summary = publisher.publish_and_compare();
    assert_eq!((summary.counts.files, summary.files_read), (84, 4));
    fs::hard_link(source.join("small"), publisher.dir.path().join("outside")).unwrap();
    publisher.publish_and_compare();
}

#[test]
fn every_file_type_round_trips_with_metadata() {
    let publisher = Publisher::new();
    let source = publisher.source();
    symlink("no such file", source.join("dangling")).unwrap();
    symlink("x".repeat(4095), source.join("long")).unwrap();
    rustix::fs::mknodat(CWD, source.join("fifo"), FileType::Fifo, Mode::from(0o640), 0).unwrap();
    std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap();
    for mode in [0o400, 0o644, 0o1777, 0o2755, 0o4755, 0o7777] {
        let path = source.join(format!("mode-{mode:o}"));
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let dir = source.join(format!("dir-{mode:o}"));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode | 0o700)).unwrap();
    }
    for (name, tv_sec, tv_nsec) in
        [("old", -86_400 * 365, 999_999_999), ("epoch", 0, 0), ("new", 4_000_000_000, 1)]
    {
        fs::write(source.join(name), "x").unwrap();
        let time = rustix::fs::Timespec { tv_sec, tv_nsec };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, source.join(name), &times, rustix::fs::AtFlags::empty())
            .unwrap();
    }
    if is_root() {
        let disk = rustix::fs::makedev(259, 70_000);
        rustix::fs::mknodat(
            CWD,
            source.join("block"),
            FileType::BlockDevice,
            Mode::from(0o660),
            disk,
        )
        .unwrap();
        let null = rustix::fs::makedev(1, 3);
        rustix::fs::mknodat(
            CWD,
            source.join("char"),
            FileType::CharacterDevice,
            Mode::from(0o666),
            null,
        )
        .unwrap();
        std::os::unix::fs::lchown(source.join("dangling"), Some(12_345), Some(u32::MAX - 1))
            .unwrap();
    }
    let summary = publisher.publish_and_compare();
    assert_eq!(summary.counts.symlinks, 2);
}

#[test]
fn names_may_be_any_bytes() {
    use std::os::unix::ffi::OsStrExt as _;
    let publisher = Publisher::new();
    let source = publisher.source();
    let names = (1..=255u8).filter(|b| !b"/.".contains(b)).map(|b| vec![b]).chain([
        vec![b'n'; 255],
        vec![0xff; 255],
        b"...".to_vec(),
    ]);
    for name in names {
        fs::write(source.join(std::ffi::OsStr::from_bytes(&name)), &name).unwrap();
    }
    assert_eq!(publisher.publish_and_compare().counts.files, 256);
}

#[test]
fn extended_attributes_of_every_name_space_round_trip() {
    let publisher = Publisher::new();
    let source = publisher.source();
    fs::create_dir(source.join("dir")).unwrap();
    fs::write(source.join("file"), "x").unwrap();
    symlink("file", source.join("link")).unwrap();
    let set = |name: &str, attribute: &str, value: &[u8]| {
        rustix::fs::lsetxattr(source.join(name), attribute, value, XattrFlags::empty())
    };
    set("file", "user.short", b"value").unwrap();
    set("file", "user.empty", b"").unwrap();
    set("file", "user.bytes", b"\0\xff\n").unwrap();
    set("dir", "user.dir", &[b'd'; 3000]).unwrap();
    set(".", "user.root", b"r").unwrap();
    // Version 2; user::rw-, user:1000:r--, group::r--, mask::rw-, other::r--.
    let acl: Vec<u8> = [2u32.to_le_bytes().to_vec()]
        .into_iter()
        .chain(
            [
                (1u16, 6u16, u32::MAX),
                (2, 4, 1000),
                (4, 4, u32::MAX),
                (16, 6, u32::MAX),
                (32, 4, u32::MAX),
            ]
            .map(|(tag, perm, id)| {
                [tag.to_le_bytes().to_vec(), perm.to_le_bytes().to_vec(), id.to_le_bytes().to_vec()]
                    .concat()
            }),
        )
        .flatten()
        .collect();
    set("file", "system.posix_acl_access", &acl).unwrap();
    let mut with_xattrs = 3;
    if is_root() {
        set("link", "trusted.link", b"t").unwrap();
        set(
            "file",
            "security.capability",
            &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        )
        .unwrap();
        with_xattrs += 1;
    }
    let summary = publisher.publish_and_compare();
    assert_eq!(summary.counts.with_xattrs, with_xattrs);
    let_timestamps_age();
    publisher.publish(&publisher.options()).unwrap();
    set("file", "user.late", b"late").unwrap();
    assert_eq!(publisher.publish_and_compare().files_read, 1);
}

#[test]
fn opaque_directories_are_marked() {
    let publisher = Publisher::new();
    let source = publisher.source();
    for dir in ["by-option/below", "by-marker", "plain"] {
        fs::create_dir_all(source.join(dir)).unwrap();
    }
    fs::write(source.join("by-marker/.vouch-opaque"), "").unwrap();
    let mut options = publisher.options();
    options.opaque = vec!["by-option/below".into()];
    publisher.publish(&options).unwrap();
    let tree = publisher.tree();
    tree.compare(&source);
    let is_opaque = |path: &str| {
        matches!(tree.find(path).unwrap().content, Content::Directory { opaque: true, .. })
    };
    assert!(
        is_opaque("by-option/below")
            && is_opaque("by-marker")
            && !is_opaque("by-option")
            && !is_opaque("plain")
    );
    publisher.publish(&publisher.options()).unwrap();
    assert!(matches!(
        publisher.tree().find("by-option/below").unwrap().content,
        Content::Directory { opaque: false, .. }
    ));
    options.opaque = vec!["nowhere".into()];
    assert!(publisher.publish(&options).is_err());
}

#[test]
#[ignore = "needs root"]
fn other_file_systems_are_left_out_when_asked() {
    let publisher = Publisher::new();
    let source = publisher.source();
    let mount = source.join("mounted");
    fs::create_dir(&mount).unwrap();
    let mounted =
        std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&mount).status();
    assert!(mounted.unwrap().success(), "only root mounts a tmpfs");
    fs::write(mount.join("inside"), "x").unwrap();
    let mut options = publisher.options();
    options.one_file_system = true;
    let without = publisher.publish(&options);
    let tree = publisher.tree();
    let with = publisher.publish(&publisher.options());
    let compared = std::panic::catch_unwind(|| publisher.tree().compare(&source));
    unmount(&mount);
    assert_eq!((without.unwrap().counts.files, with.unwrap().counts.files), (0, 1));
    assert!(matches!(tree.find("mounted").unwrap().content, Content::Directory { entries: 0, .. }));
    compared.unwrap();
}

fn unmount(path: &Path) {
    std::process::Command::new("umount").arg(path).status().unwrap();
}

#[test]
fn depth_and_path_length_are_unlimited() {
    use std::os::fd::{AsFd as _, OwnedFd};
    let publisher = Publisher::new();
    let mut dir: OwnedFd = fs::File::open(publisher.source()).unwrap().into();
    let name = "d".repeat(100);
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    for depth in 0..1_500 {
        rustix::fs::mkdirat(dir.as_fd(), &*name, Mode::from(0o755)).unwrap();
        rustix::fs::mkdirat(dir.as_fd(), "z-sibling", Mode::from(0o755)).unwrap();
        if depth % 100 == 0 {
            rustix::fs::symlinkat("../..", dir.as_fd(), "up").unwrap();
        }
        dir = rustix::fs::openat(dir.as_fd(), &*name, flags, Mode::empty()).unwrap();
    }
    let compared = std::thread::Builder::new().stack_size(256 << 20).spawn(move || {
        let summary = publisher.publish_and_compare();
        assert_eq!(summary.counts.directories, 3_001);
        let again = publisher.publish_and_compare();
        assert_eq!(again.counts, summary.counts);
        assert!(
            std::process::Command::new("rm")
                .arg("-rf")
                .arg(publisher.source())
                .status()
                .unwrap()
                .success()
        );
    });
    compared.unwrap().join().unwrap();
}
