use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};

use vouch_vfs::{Blocking, Caller, FileSystem as _};
use vouch_vfs_posix::Options;

use crate::fixture::{
    Short as _, alone, content, export, hung_fuse, image, memory, mount, named, overlay, put,
    refused, run, unmount, users, with_names, within_a_minute,
};

mod bind_mounts;

fn crossing() -> Options {
    Options { cross_mounts: true, ..Options::default() }
}

#[test]
#[ignore = "needs root"]
fn mounted_file_system_has_own_fsid_and_rights() {
    alone("mount_crossing::mounted_file_system_has_own_fsid_and_rights", &[], |above| {
        let root = above.join("root");
        memory(&root.join("sub"));
        std::fs::set_permissions(root.join("sub"), PermissionsExt::from_mode(0o1777))
            .expect("root is allowed");
        std::fs::create_dir(root.join("sub/private")).expect("a directory");
        std::fs::set_permissions(root.join("sub/private"), PermissionsExt::from_mode(0o700))
            .expect("root is allowed");
        std::fs::write(root.join("sub/private/secret"), "secret").expect("a file");
        std::fs::write(root.join("beside"), "beside").expect("a file");
        chown(root.join("beside"), Some(1234), Some(1234)).expect("root is allowed");
        std::fs::set_permissions(&root, PermissionsExt::from_mode(0o1777))
            .expect("root is allowed");

        let fs = export(&root, crossing());
        let (one, other) = users();
        let (sub, at_sub) = fs.find(&one, &fs.root(), "sub").expect("the mount point is entered");
        let at_root = fs.attributes_of(&fs.root()).expect("the root");
        assert_ne!(at_sub.fsid, at_root.fsid);
        assert_eq!(fs.parent(&one, &sub, Blocking::Allowed).expect("an entry exists"), fs.root());
        let mut listed = None;
        let mut each = |entry: vouch_vfs::DirectoryEntry<'_>| {
            if entry.name == b"sub" {
                listed = entry.file.and_then(Result::ok);
            }
            ControlFlow::Continue(())
        };
        fs.read_directory(&one, &fs.root(), 0, true, Blocking::Allowed, &mut each)
            .expect("listing succeeds");
        let (id, attributes) = listed.expect("the entry is listed");
        assert_eq!(
            (id, attributes.fsid, attributes.file_number),
            (sub, at_sub.fsid, at_sub.file_number)
        );

        let made = fs.new_file(&one, &sub, "mine", 0o600).expect("creation is permitted");
        put(&*made.open, 0, b"mine").expect("writing succeeds");
        assert_eq!((made.attributes.fsid, made.attributes.uid), (at_sub.fsid, 1234));
        refused!(fs.opened(&other, &made.id), Access);
        let (private, _) = fs.find(&one, &sub, "private").expect("the name is visible");
        refused!(fs.find(&one, &private, "secret"), Access);
        assert_eq!(
            fs.parent(&Caller::root(), &private, Blocking::Allowed).expect("an entry exists"),
            sub
        );
        refused!(
            fs.rename(&one, &fs.root(), named("beside"), &sub, named("beside"), None),
            CrossesFileSystems
        );
        let (beside, _) = fs.find(&one, &fs.root(), "beside").expect("the file exists");
        refused!(fs.link(&one, &beside, &sub, named("beside")), CrossesFileSystems);
        refused!(fs.remove(&Caller::root(), &fs.root(), named("sub"), None), Busy);

        drop((fs, made.open));
        let fs = export(&root, crossing());
        assert_eq!(content(&*fs.opened(&one, &made.id).expect("the lookup succeeds")), b"mine");
        // Without the option, mount points are not crossed.
        let plain = export(&root, Options::default());
        let (covered, _) =
            plain.find(&one, &plain.root(), "sub").expect("the covered directory is visible");
        refused!(plain.find(&one, &covered, "private"), NotFound);
        refused!(plain.attributes_of(&made.id), Stale);
        drop((fs, plain));
        unmount(&root.join("sub"));
        memory(&root.join("sub"));
        let fs = export(&root, crossing());
        refused!(fs.attributes_of(&made.id), Stale);
    });
}

#[test]
#[ignore = "needs root"]
fn uncrossed_mount_point_shows_empty_directory() {
    alone("mount_crossing::uncrossed_mount_point_shows_empty_directory", &[], |above| {
        let root = above.join("root");
        std::fs::create_dir_all(root.join("private")).expect("directories");
        std::fs::write(root.join("file"), "plain").expect("a file");
        std::fs::write(root.join("bound"), "covered").expect("a file");
        std::fs::set_permissions(root.join("private"), PermissionsExt::from_mode(0o700))
            .expect("root is allowed");
        let number = |path: &str| {
            std::fs::create_dir_all(root.join(path)).expect("a directory");
            std::fs::metadata(root.join(path)).expect("a directory").ino()
        };
        let (number_of_sub, _) = (number("sub"), number("private/sub"));
        for point in ["sub", "private/sub"] {
            memory(&root.join(point));
        }
        std::fs::write(root.join("sub/mounted"), "mounted").expect("a file");
        run(
            "mount",
            [
                "--bind",
                &root.join("sub/mounted").to_string_lossy(),
                &root.join("bound").to_string_lossy(),
            ],
        )
        .expect("the bind mount succeeds");

        let fs = export(&root, Options::default());
        let (one, _) = users();
        let mut listed = std::collections::BTreeMap::new();
        let mut each = |entry: vouch_vfs::DirectoryEntry<'_>| {
            let name = String::from_utf8_lossy(entry.name).into_owned();
            let file =
                entry.file.expect("asked for").unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(entry.file_number, file.1.file_number);
            listed.insert(name, file);
            ControlFlow::Continue(())
        };
        assert!(
            fs.read_directory(&one, &fs.root(), 0, true, Blocking::Allowed, &mut each)
                .expect("listing succeeds")
        );
        assert_eq!(listed.keys().collect::<Vec<_>>(), ["bound", "file", "private", "sub"]);
        let (sub, shown) = listed["sub"];
        let at_root = fs.attributes_of(&fs.root()).expect("the root");
        assert_eq!(
            (shown.file_number, shown.fsid, shown.file_type),
            (number_of_sub, at_root.fsid, vouch_vfs::FileType::Directory)
        );
        assert_eq!(fs.find(&one, &fs.root(), "sub").expect("found").0, sub);
        assert_eq!(fs.attributes_of(&sub).expect("the file has attributes"), shown);
        assert_eq!(fs.parent(&one, &sub, Blocking::Allowed).expect("an entry exists"), fs.root());
        let mut none = |entry: vouch_vfs::DirectoryEntry<'_>| panic!("{:?}", entry.name);
        assert!(
            fs.read_directory(&one, &sub, 0, true, Blocking::Allowed, &mut none)
                .expect("the value is empty")
        );
        refused!(fs.find(&one, &sub, "mounted"), NotFound);
        for who in [&one, &Caller::root()] {
            refused!(fs.new_file(who, &sub, "new", 0o600), ReadOnly);
            refused!(fs.new_directory(who, &sub, "new", 0o700), ReadOnly);
        }
        refused!(fs.remove(&Caller::root(), &fs.root(), named("sub"), None), Busy);
        let (superuser, set) =
            (Caller::root(), vouch_vfs::SetAttributes { mode: Some(0o600), ..Default::default() });
        let both = vouch_vfs::OpenAccess { read: true, write: true };
        for how in [vouch_vfs::CreateHow::Guarded, vouch_vfs::CreateHow::Exclusive([1; 8])] {
            let made = fs.create(&superuser, &fs.root(), named("sub"), how, &set, both);
            assert!(matches!(made, Err(vouch_vfs::Error::Exists)), "{how:?}: {:?}", made.err());
        }
        refused!(fs.new_directory(&superuser, &fs.root(), "sub", 0o700), Exists);
        let (bound, as_shown) = listed["bound"];
        assert_eq!((as_shown.file_type, as_shown.size), (vouch_vfs::FileType::Regular, 0));
        refused!(fs.opened(&Caller::root(), &bound), Access);
        let (private, _) = fs.find(&one, &fs.root(), "private").expect("the name is visible");
        refused!(fs.find(&one, &private, "sub"), Access);
        assert!(fs.find(&Caller::root(), &private, "sub").is_ok());
        unmount(&root.join("bound"));
        unmount(&root.join("sub"));
        let (uncovered, itself) = fs.find(&one, &fs.root(), "sub").expect("found");
        assert!(uncovered != sub && itself.file_number == number_of_sub);
    });
}

#[test]
#[ignore = "needs root"]
fn directory_is_listed_once_for_all_covered_names() {
    alone(
        "mount_crossing::directory_is_listed_once_for_all_covered_names",
        &["mkfs.ext4"],
        |above| {
            let root = above.join("root");
            image("ext4", &[], &root);
            let names = ["one", "two", "three"];
            let number = |name: &str| {
                std::fs::create_dir(root.join(name)).expect("a directory");
                std::fs::metadata(root.join(name)).expect("a directory").ino()
            };
            let numbers = names.map(number);
            for name in names {
                memory(&root.join(name));
            }
            let fs = export(&root, Options::default());
            let find = |name: &str, blocking| {
                fs.lookup(&Caller::root(), &fs.root(), named(name), blocking)
            };
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
            loop {
                find("two", Blocking::Allowed).expect("the value is shown");
                if find("two", Blocking::Forbidden).is_ok() {
                    break;
                }
                assert!(std::time::Instant::now() < deadline, "the directory is listed each time");
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            let known = names
                .map(|name| find(name, Blocking::Forbidden).expect("all are known").1.file_number);
            assert_eq!(known, numbers);
            unmount(&root.join("one"));
            std::fs::remove_dir(root.join("one")).expect("the value is empty");
            std::fs::create_dir(root.join("kept")).expect("the number is accepted");
            let new = number("one");
            memory(&root.join("one"));
            refused!(find("one", Blocking::Forbidden), WouldBlock);
            assert_eq!(
                find("one", Blocking::Allowed).expect("the value is shown").1.file_number,
                new
            );
            assert_eq!(
                find("two", Blocking::Allowed).expect("the value is shown").1.file_number,
                numbers[1]
            );
        },
    );
}

#[test]
#[ignore = "needs root"]
fn nested_and_bind_mounts_are_crossed() {
    alone("mount_crossing::nested_and_bind_mounts_are_crossed", &["mkfs.ext4"], |above| {
        let root = above.join("root");
        image("ext4", &[], &root);
        memory(&root.join("a"));
        image("ext4", &[], &root.join("a/b"));
        std::fs::create_dir(root.join("there")).expect("a directory");
        std::fs::write(root.join("there/file"), "there").expect("a file");
        std::fs::create_dir(root.join("other")).expect("a directory");
        mount("none", "bind", &root.join("other"), &root.join("a/in/bound"));
        mount("none", "bind", &root.join("there"), &root.join("here"));
        let fs = export(&root, crossing());
        let one = Caller::root();
        let (a, at_a) = fs.find(&one, &fs.root(), "a").expect("entered");
        let (b, at_b) = fs.find(&one, &a, "b").expect("entered");
        let at_root = fs.attributes_of(&fs.root()).expect("the root");
        assert!(at_a.fsid != at_b.fsid && at_b.fsid != at_root.fsid && at_a.fsid != at_root.fsid);
        assert_eq!(fs.parent(&one, &b, Blocking::Allowed).expect("an entry exists"), a);
        assert_eq!(fs.parent(&one, &a, Blocking::Allowed).expect("an entry exists"), fs.root());
        let deep = fs.new_file(&one, &b, "deep", 0o600).expect("made").id;
        let (here, _) = fs.find(&one, &fs.root(), "here").expect("entered");
        let (there, _) = fs.find(&one, &fs.root(), "there").expect("the file exists");
        // Another mount may be remounted read-only or idmapped by itself.
        assert_ne!(here, there);
        let (within, _) = fs.find(&one, &a, "in").expect("the directory exists");
        let (bound, _) = fs.find(&one, &within, "bound").expect("entered");
        drop(fs);
        let fs = export(&root, crossing());
        assert_eq!(fs.parent(&one, &bound, Blocking::Allowed).expect("an entry exists"), within);
        drop(fs);
        let fs = export(&root, crossing());
        assert_eq!(fs.attributes_of(&deep).expect("found by its handle").fsid, at_b.fsid);
    });
}

#[test]
#[ignore = "needs root"]
fn hung_mount_makes_no_network_thread_wait() {
    alone("mount_crossing::hung_mount_makes_no_network_thread_wait", &["mkfs.ext4"], |above| {
        for (on, of_user) in [("memory", 0), ("disk", 0), ("memory", 1000), ("disk", 1000)] {
            let root = above.join(format!("{on}-{of_user}"));
            if on == "memory" {
                memory(&root)
            } else {
                image("ext4", &[], &root)
            }
            std::fs::write(root.join("beside"), "beside").expect("a file");
            let device = hung_fuse(&root.join("hung"), of_user);
            let who = Caller::root();
            // Without the option, nothing of it is asked, on any thread.
            let plain = export(&root, Options::default());
            within_a_minute({
                let (plain, who) = (plain.clone(), who.clone());
                move || {
                    let _ = plain.lookup(&who, &plain.root(), named("hung"), Blocking::Forbidden);
                    let (covered, _) = plain
                        .find(&who, &plain.root(), "hung")
                        .expect("the covered directory is visible");
                    refused!(plain.find(&who, &covered, "file"), NotFound);
                    refused!(plain.remove(&who, &plain.root(), named("hung"), None), Busy);
                    assert_eq!(names(&plain, &who), ["beside", "hung"]);
                }
            });
            let fs = export(&root, crossing_with(&above.join(format!("{on}-{of_user}-names"))));
            within_a_minute({
                let (fs, who) = (fs.clone(), who.clone());
                move || {
                    refused!(
                        fs.lookup(&who, &fs.root(), named("hung"), Blocking::Forbidden),
                        WouldBlock
                    );
                    refused!(fs.remove(&who, &fs.root(), named("hung"), None), Busy);
                    fs.find(&who, &fs.root(), "beside").expect("the file exists");
                    assert_eq!(fs.remote_system(), None);
                    if of_user == 0 {
                        // A thread for local disks notes the file system and leaves the rest to others.
                        refused!(fs.find(&who, &fs.root(), "hung"), WouldBlock);
                        assert!(fs.remote_system().is_some());
                    } else {
                        let (covered, _) = fs
                            .find(&who, &fs.root(), "hung")
                            .expect("the covered directory is visible");
                        refused!(fs.find(&who, &covered, "file"), NotFound);
                        assert_eq!(
                            (names(&fs, &who), fs.remote_system()),
                            (vec!["beside".to_owned(), "hung".to_owned()], None)
                        );
                    }
                }
            });
            if of_user == 0 {
                // One caller waits for it, others go on.
                let waiting = std::thread::spawn({
                    let (fs, who) = (fs.clone(), who.clone());
                    move || fs.find(&who, &fs.root(), "hung").is_ok()
                });
                within_a_minute({
                    let (fs, who) = (fs.clone(), who.clone());
                    move || fs.find(&who, &fs.root(), "beside").map(drop).expect("the file exists")
                });
                drop(device);
                assert!(!waiting.join().expect("no panic"), "its process has ended");
                run("umount", ["--lazy".as_ref(), root.join("hung").as_os_str()])
                    .expect("unmounted");
            }
        }
    });
}

fn names(fs: &vouch_vfs_posix::PosixFs, who: &Caller) -> Vec<String> {
    let mut names = Vec::new();
    let mut each = |entry: vouch_vfs::DirectoryEntry<'_>| {
        entry.file.expect("asked for").expect("it is shown");
        if entry.name != b"lost+found" {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
        }
        ControlFlow::Continue(())
    };
    assert!(
        fs.read_directory(who, &fs.root(), 0, true, Blocking::Allowed, &mut each)
            .expect("listing succeeds")
    );
    names.sort();
    names
}

fn crossing_with(names: &std::path::Path) -> Options {
    Options { cross_mounts: true, ..with_names(names) }
}

#[test]
#[ignore = "needs root"]
fn identity_of_no_mount_is_looked_for_once() {
    alone("mount_crossing::identity_of_no_mount_is_looked_for_once", &[], |above| {
        let root = above.join("root");
        memory(&root);
        memory(&root.join("sub"));
        let fs = export(&root, crossing());
        let (sub, _) = fs.find(&Caller::root(), &fs.root(), "sub").expect("entered");
        drop(fs);
        let fs = export(&root, crossing());
        // Found anew by a thread that may wait, then known to all.
        refused!(fs.attributes(&sub, Blocking::Forbidden), WouldBlock);
        fs.attributes_of(&sub).expect("found");
        fs.attributes(&sub, Blocking::Forbidden).expect("known");
        let mut unknown = sub.as_bytes().to_vec();
        unknown[1] ^= 1;
        let unknown = vouch_vfs::FileId::new(&unknown).expect("as long as before");
        refused!(fs.attributes_of(&unknown), Stale);
        refused!(fs.attributes(&unknown, Blocking::Forbidden), Stale);
        run("umount", ["--lazy".as_ref(), root.join("sub").as_os_str()]).expect("unmounted");
        refused!(fs.attributes(&sub, Blocking::Forbidden), WouldBlock);
        refused!(fs.attributes_of(&sub), Stale);
    });
}

#[test]
#[ignore = "needs root"]
fn subvolume_has_own_fsid() {
    alone("mount_crossing::subvolume_has_own_fsid", &["mkfs.btrfs", "btrfs"], |above| {
        let root = above.join("root");
        image("btrfs", &[], &root);
        run("btrfs", ["subvolume", "create", &root.join("sub").to_string_lossy()])
            .expect("a subvolume can be made");
        std::fs::write(root.join("sub/file"), "in it").expect("a file");
        std::fs::write(root.join("file"), "beside it").expect("a file");
        let number = |path: &str| std::fs::metadata(root.join(path)).expect("a file").ino();
        assert_eq!(number("sub/file"), number("file"));
        let fs = export(&root, Options::default());
        let one = Caller::root();
        let (sub, at_sub) = fs.find(&one, &fs.root(), "sub").expect("no mount is crossed");
        let (inner, at_inner) = fs.find(&one, &sub, "file").expect("the file exists");
        let (outer, at_outer) = fs.find(&one, &fs.root(), "file").expect("the file exists");
        assert!(inner != outer && at_inner.fsid != at_outer.fsid && at_sub.fsid == at_inner.fsid);
        drop(fs);
        let fs = export(&root, Options::default());
        assert_eq!(content(&*fs.opened(&one, &inner).expect("found by its handle")), b"in it");
        assert_eq!(content(&*fs.opened(&one, &outer).expect("found by its handle")), b"beside it");
    });
}

#[test]
#[ignore = "needs root"]
fn file_system_without_handles_needs_name_store() {
    alone("mount_crossing::file_system_without_handles_needs_name_store", &[], |above| {
        let root = above.join("root");
        std::fs::create_dir(&root).expect("a directory");
        memory(&root);
        let sub = root.join("sub");
        overlay(&sub);
        std::fs::create_dir(sub.join("deep")).expect("a directory");
        std::fs::write(sub.join("deep/file"), "by its name").expect("a file");
        let one = Caller::root();
        let fs = export(&root, crossing());
        // Nothing of the mounted one shows.
        let (covered, _) = fs.find(&one, &fs.root(), "sub").expect("a directory");
        refused!(fs.find(&one, &covered, "deep"), NotFound);
        drop(fs);
        let store = above.join("names");
        let keeping = || Options { cross_mounts: true, ..with_names(&store) };
        let fs = export(&root, keeping());
        let (entered, at_sub) = fs.find(&one, &fs.root(), "sub").expect("entered");
        assert_ne!(at_sub.fsid, fs.attributes_of(&fs.root()).expect("the root").fsid);
        let (deep, _) = fs.find(&one, &entered, "deep").expect("the file exists");
        let (file, _) = fs.find(&one, &deep, "file").expect("the file exists");
        drop(fs);
        let fs = export(&root, keeping());
        assert_eq!(content(&*fs.opened(&one, &file).expect("found by its names")), b"by its name");
    });
}
