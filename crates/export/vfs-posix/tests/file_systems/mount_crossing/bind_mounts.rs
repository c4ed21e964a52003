//! A handle permits no more than the mount that its file is below.

use vouch_vfs::{Blocking, Caller, FileSystem as _};
use vouch_vfs_posix::PosixFs;

use super::crossing;
use crate::fixture::{
    Short as _, alone, content, export, image, memory, mount, named, refused, run,
};

#[test]
#[ignore = "needs root"]
fn handle_of_read_only_bind_mount_never_permits_writing() {
    alone(
        "mount_crossing::bind_mounts::handle_of_read_only_bind_mount_never_permits_writing",
        &["mkfs.ext4"],
        |above| {
            let one = Caller::root();
            let (readable, writable) = (
                vouch_vfs::OpenAccess { read: true, write: false },
                vouch_vfs::OpenAccess { read: true, write: true },
            );
            // The root and a mount below it, each in turn the writable one.
            for root_is_read_only in [false, true] {
                let root = above.join(format!("root-{root_is_read_only}"));
                let disk = above.join(format!("disk-{root_is_read_only}"));
                image("ext4", &[], &disk);
                std::fs::create_dir(disk.join("sub")).expect("a directory");
                std::fs::create_dir(disk.join("second")).expect("a directory");
                std::fs::write(disk.join("sub/file"), "right").expect("a file");
                mount("none", "bind", &disk, &root);
                mount("none", "bind", &disk.join("sub"), &root.join("second"));
                let read_only = if root_is_read_only { root.clone() } else { root.join("second") };
                run("mount", ["-o", "remount,bind,ro", &read_only.to_string_lossy()])
                    .expect("the remount succeeds");
                let mut found: Vec<(&str, vouch_vfs::FileId)> = Vec::new();
                // Again after a restart, in both orders.
                for order in [["sub", "second"], ["second", "sub"]] {
                    let fs = export(&root, crossing());
                    for (name, id) in found.drain(..) {
                        let opened = fs.open(
                            &one,
                            &id,
                            writable,
                            vouch_vfs::AccessOverride::None,
                            Blocking::Allowed,
                        );
                        assert_eq!(
                            opened.is_err(),
                            (name == "second") != root_is_read_only,
                            "{name} by its handle"
                        );
                    }
                    for name in order {
                        let (directory, _) = fs.find(&one, &fs.root(), name).expect("entered");
                        let (file, _) = fs.find(&one, &directory, "file").expect("the file exists");
                        let opened = fs.open(
                            &one,
                            &file,
                            readable,
                            vouch_vfs::AccessOverride::None,
                            Blocking::Allowed,
                        );
                        assert_eq!(content(&*opened.expect("readable")), b"right");
                        found.push((name, file));
                    }
                    assert_ne!(found[0].1, found[1].1);
                }
            }
        },
    );
}

#[test]
#[ignore = "needs root"]
fn remounted_bind_mount_permits_no_more_than_now() {
    alone(
        "mount_crossing::bind_mounts::remounted_bind_mount_permits_no_more_than_now",
        &["mkfs.ext4"],
        |above| {
            let (root, disk) = (above.join("root"), above.join("disk"));
            memory(&root);
            image("ext4", &[], &disk);
            std::fs::create_dir(disk.join("sub")).expect("a directory");
            std::fs::write(disk.join("sub/file"), "right").expect("a file");
            for name in ["one", "two"] {
                mount("none", "bind", &disk.join("sub"), &root.join(name));
            }
            let fs = export(&root, crossing());
            let who = Caller::root();
            let both = vouch_vfs::OpenAccess { read: true, write: true };
            let write = |id| {
                fs.open(&who, &id, both, vouch_vfs::AccessOverride::None, Blocking::Allowed)
                    .map(drop)
            };
            let find = |name: &str| {
                let (directory, _) = fs.find(&who, &fs.root(), name).expect("entered");
                fs.find(&who, &directory, "file").expect("the file exists").0
            };
            // The descriptor is on the first of the two.
            let before = find("one");
            assert_eq!(find("two"), before);
            write(before).expect("both are writable");
            let remount = |name: &str, how: &str| {
                run(
                    "mount",
                    ["-o", &format!("remount,bind,{how}"), &root.join(name).to_string_lossy()],
                )
                .expect("the remount succeeds")
            };
            remount("two", "ro");
            refused!(write(find("two")), ReadOnly);
            write(find("one")).expect("that mount is writable still");
            refused!(
                fs.lookup(&who, &fs.root(), named("two"), Blocking::Forbidden).map(drop),
                WouldBlock
            );
            remount("one", "ro");
            refused!(write(find("one")), ReadOnly);
            // An identity from before is not stale, and permits no more.
            refused!(write(before), ReadOnly);
            remount("two", "rw");
            write(find("two")).expect("writable again");
            refused!(write(find("one")), ReadOnly);
            for name in ["one", "two"] {
                run("umount", ["--lazy".as_ref(), root.join(name).as_os_str()]).expect("unmounted");
            }
            refused!(write(before), Stale);
        },
    );
}

#[test]
#[ignore = "needs root"]
fn handle_leads_only_through_mount_of_its_subtree() {
    alone(
        "mount_crossing::bind_mounts::handle_leads_only_through_mount_of_its_subtree",
        &["mkfs.ext4"],
        |above| {
            let who = Caller::root();
            let both = vouch_vfs::OpenAccess { read: true, write: true };
            let write = |fs: &PosixFs, id| {
                fs.open(&who, &id, both, vouch_vfs::AccessOverride::None, Blocking::Allowed)
                    .map(drop)
            };
            let find = |fs: &PosixFs, path: [&str; 2]| {
                let (directory, _) = fs.find(&who, &fs.root(), path[0]).expect("entered");
                fs.find(&who, &directory, path[1]).expect("the file exists").0
            };
            let remount = |point: &std::path::Path, how: &str| {
                run("mount", ["-o", &format!("remount,{how}"), &point.to_string_lossy()])
                    .expect("the remount succeeds")
            };
            // The export is in memory, or a directory of the same file system.
            for on_disk in [false, true] {
                let (root, disk) =
                    (above.join(format!("root-{on_disk}")), above.join(format!("disk-{on_disk}")));
                image("ext4", &[], &disk);
                for subtree in ["a", "b", "root"] {
                    std::fs::create_dir(disk.join(subtree)).expect("a directory");
                    std::fs::write(disk.join(subtree).join("file"), "right").expect("a file");
                }
                if on_disk {
                    mount("none", "bind", &disk.join("root"), &root);
                } else {
                    memory(&root);
                }
                let bind = |from: &str, name: &str| {
                    mount("none", "bind", &disk.join(from), &root.join(name))
                };
                bind("a", "one");
                bind("b", "two");

                let fs = export(&root, crossing());
                let (before, beside) = (find(&fs, ["one", "file"]), find(&fs, ["two", "file"]));
                write(&fs, before).expect("writable");
                remount(&root.join("one"), "bind,ro");
                let of_read_only = find(&fs, ["one", "file"]);
                for id in [before, of_read_only] {
                    refused!(write(&fs, id), ReadOnly);
                }
                write(&fs, beside).expect("that mount is writable still");
                drop(fs);
                let fs = export(&root, crossing());
                for id in [before, of_read_only] {
                    refused!(write(&fs, id), ReadOnly);
                }
                write(&fs, beside).expect("that mount is writable still");
                // The file system is read-only for a while.
                remount(&disk, "ro");
                let during = find(&fs, ["one", "file"]);
                refused!(write(&fs, during), ReadOnly);
                remount(&disk, "rw");
                refused!(write(&fs, during), ReadOnly);
                drop(fs);
                let fs = export(&root, crossing());
                refused!(write(&fs, during), ReadOnly);
                // The renamed directory keeps its identity.
                std::fs::rename(disk.join("b"), disk.join("renamed")).expect("renamed");
                drop(fs);
                let fs = export(&root, crossing());
                write(&fs, beside).expect("found");
                // No mount has the file now.
                run("umount", ["--lazy".as_ref(), root.join("one").as_os_str()])
                    .expect("unmounted");
                for id in [before, of_read_only, during] {
                    refused!(write(&fs, id), Stale);
                }
            }
        },
    );
}

#[test]
#[ignore = "needs root"]
fn handle_of_whole_file_system_outlives_remounts() {
    alone(
        "mount_crossing::bind_mounts::handle_of_whole_file_system_outlives_remounts",
        &["mkfs.ext4"],
        |above| {
            let root = above.join("root");
            memory(&root);
            image("ext4", &[], &root.join("disk"));
            std::fs::write(root.join("disk/file"), "right").expect("a file");
            let fsid = rustix::fs::statvfs(root.join("disk")).expect("a file system").f_fsid;
            let find = |fs: &PosixFs| {
                let (directory, _) = fs.find(&Caller::root(), &fs.root(), "disk").expect("entered");
                fs.find(&Caller::root(), &directory, "file").expect("the file exists").0
            };
            let fs = export(&root, crossing());
            let id = find(&fs);
            assert_eq!(id.as_bytes()[1..9], fsid.to_be_bytes(), "as earlier versions number it");
            for how in ["ro", "rw"] {
                run(
                    "mount",
                    ["-o", &format!("remount,{how}"), &root.join("disk").to_string_lossy()],
                )
                .expect("the remount succeeds");
                assert_eq!(find(&fs), id);
                assert_eq!(find(&export(&root, crossing())), id);
            }
            fs.opened(&Caller::root(), &id).expect("writable again");
        },
    );
}
