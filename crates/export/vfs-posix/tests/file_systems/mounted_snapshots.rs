//! `.snapshot` over mounted copies and btrfs snapshots.

use std::path::Path;

use vouch_testkit::within;
use vouch_vfs::{Blocking, FileSystem as _};
use vouch_vfs_posix::{Options, leave_callers};

use crate::fixture::{Short as _, alone, hung_fuse, image, made, mount, refused, run, unmount};
use crate::snapshots::{Site, maintain_twice, me, names, open_at, open_to_read, read, walk};

#[test]
#[ignore = "needs root"]
fn unused_snapshot_can_be_unmounted() {
    alone("mounted_snapshots::unused_snapshot_can_be_unmounted", &["mkfs.ext4"], |above| {
        std::fs::create_dir_all(above.join("live")).expect("a directory");
        let (first, second) = (above.join("snapshots/one"), above.join("snapshots/two"));
        std::fs::create_dir_all(above.join("snapshots")).expect("a directory");
        let volume = made("ext4", &[], &above.join("volume"));
        mount("ext4", "loop", &volume, &first);
        std::fs::write(first.join("file"), "first").expect("a file");
        unmount(&first);
        // As LVM does it: the same identifiers in each copy.
        let copy = above.join("copy.image");
        std::fs::copy(&volume, &copy).expect("a copy");
        for (image, point) in [(&volume, &first), (&copy, &second)] {
            mount("ext4", "loop", image, point);
        }
        std::fs::write(second.join("file"), "second").expect("a file");
        let pattern = above.join("snapshots").to_str().expect("UTF-8").to_owned();
        let fs = open_at(&above.join("live"), Options::default(), &pattern, false);
        let ids = ["one", "two"].map(|name| walk(&fs, &format!(".snapshot/{name}/file")).0);
        assert_eq!(ids.map(|id| read(&fs, &id)), [b"first".to_vec(), b"second".to_vec()]);
        drop(fs);
        let fs = open_at(&above.join("live"), Options::default(), &pattern, false);
        assert_eq!(ids.map(|id| read(&fs, &id)), [b"first".to_vec(), b"second".to_vec()]);
        // Lazily, as the server has it open. The files are gone, but the other snapshot's are not.
        let open = open_to_read(&fs, &ids[0]);
        run("umount", [std::ffi::OsStr::new("-l"), first.as_os_str()]).expect("unmounted");
        maintain_twice(&fs);
        refused!(fs.attributes_of(&ids[0]), Stale);
        assert_eq!(read(&fs, &ids[1]), b"second");
        assert!(is_in_use(&volume) && fs.has_removed_files() && fs.is_removed(&ids[0]));
        drop(open);
        // The kernel detaches a loop device some time after the file system's last use.
        within(120, "the device is still in use", || !is_in_use(&volume));
        assert!(is_in_use(&copy) && !fs.has_removed_files());
        drop(fs);
        unmount(&second);
    });
}

/// By a loop device.
fn is_in_use(image: &Path) -> bool {
    let devices = std::fs::read_dir("/sys/block").expect("sysfs is mounted");
    let images = devices.filter_map(|device| {
        std::fs::read_to_string(device.ok()?.path().join("loop/backing_file")).ok()
    });
    images.into_iter().any(|name| Path::new(name.trim_end()) == image)
}

#[test]
#[ignore = "needs root"]
fn btrfs_snapshots_are_shown_and_end() {
    alone(
        "mounted_snapshots::btrfs_snapshots_are_shown_and_end",
        &["mkfs.btrfs", "btrfs"],
        |above| {
            let volume = above.join("volume");
            image("btrfs", &[], &volume);
            let subvolume = |args: &[&str]| {
                run("btrfs", [&["subvolume"], args].concat())
                    .unwrap_or_else(|why| panic!("{args:?}: {why}"))
            };
            let path = |name: &str| volume.join(name).to_str().expect("UTF-8").to_owned();
            subvolume(&["create", &path("data")]);
            std::fs::create_dir_all(path("snapshots")).expect("a directory");
            std::fs::create_dir(path("data/dir")).expect("a directory");
            for name in ["one", "two"] {
                std::fs::write(path("data/dir/file"), name).expect("a file");
                subvolume(&["snapshot", "-r", &path("data"), &path(&format!("snapshots/{name}"))]);
            }
            std::fs::write(path("data/dir/file"), "live").expect("a file");
            let open =
                || open_at(Path::new(&path("data")), Options::default(), &path("snapshots"), false);
            let fs = open();
            let files = ["dir/file", "dir/.snapshot/one/file", "dir/.snapshot/two/file"]
                .map(|path| walk(&fs, path));
            let numbers = files.map(|(_, attributes)| attributes.file_number);
            assert!(
                numbers[0] == numbers[1] && numbers[1] == numbers[2],
                "a snapshot keeps the numbers"
            );
            let fsids = files.map(|(_, attributes)| attributes.fsid);
            assert!(fsids[0] != fsids[1] && fsids[1] != fsids[2] && fsids[0] != fsids[2]);
            drop(fs);
            let fs = open();
            assert_eq!(
                files.map(|(id, _)| read(&fs, &id)),
                [b"live".to_vec(), b"one".to_vec(), b"two".to_vec()]
            );
            // A user restores a file.
            let access = vouch_vfs::OpenAccess { read: true, write: false };
            let from = fs.open(
                &me(),
                &files[1].0,
                access,
                vouch_vfs::AccessOverride::None,
                Blocking::Allowed,
            );
            let to = fs.opened(&me(), &files[0].0).expect("the live file can be written");
            assert_eq!(
                to.copy_from(&*from.expect("the file can be read"), 0, 0, 3)
                    .expect("copied between subvolumes"),
                3
            );
            to.truncate(3).expect("cut");
            assert_eq!(read(&fs, &files[0].0), b"one");
            drop(to);
            leave_callers().expect("switching back succeeds");
            subvolume(&["delete", &path("snapshots/one")]);
            fs.maintain();
            refused!(fs.attributes_of(&files[1].0), Stale);
            assert_eq!(read(&fs, &files[2].0), b"two");
            assert_eq!(names(&fs, "dir/.snapshot"), ["two"]);
            drop(fs);
            unmount(&volume);
        },
    );
}

/// Otherwise each GETATTR of `.snapshot` would open all snapshots.
#[test]
fn attributes_of_list_share_one_look_at_all_snapshots() {
    let mut site = Site::new();
    site.pattern += "/*/dir";
    let fs = site.open();
    let list = fs.find(&me(), &fs.root(), ".snapshot").expect("found").0;
    let change = || fs.attributes_of(&list).expect("its attributes").change;
    // This does not show in the directory of the snapshots. Tries allow for a paused test.
    let is_shared = (0..10).any(|_| {
        let before = change();
        std::fs::rename(site.path("snapshots/two/dir"), site.path("snapshots/two/away"))
            .expect("renamed");
        let after = change();
        std::fs::rename(site.path("snapshots/two/away"), site.path("snapshots/two/dir"))
            .expect("renamed back");
        before == after
    });
    assert!(is_shared);
    // A new snapshot is seen at once.
    let before = change();
    site.write("snapshots/three/dir/file", "third");
    assert_ne!(change(), before);
}

/// Otherwise one dead mount makes each GETATTR of `.snapshot` open all snapshots.
#[test]
#[ignore = "needs root"]
fn failure_of_a_snapshot_is_shared_as_the_list_is() {
    alone("mounted_snapshots::failure_of_a_snapshot_is_shared_as_the_list_is", &[], |above| {
        std::fs::create_dir_all(above.join("live")).expect("a directory");
        std::fs::create_dir_all(above.join("snapshots/one")).expect("a directory");
        let dead = above.join("snapshots/dead");
        std::fs::create_dir_all(dead.join("dir")).expect("a directory");
        let pattern = above.join("snapshots/*/dir").to_str().expect("UTF-8").to_owned();
        let fs = open_at(&above.join("live"), Options::default(), &pattern, false);
        let list = fs.find(&me(), &fs.root(), ".snapshot").expect("found").0;
        let attributes = || fs.attributes_of(&list);
        // Neither the mount nor its end shows in the directory. Tries allow for a paused test.
        for _ in 0..10 {
            let device = hung_fuse(&dead, 0);
            drop(device);
            let otherwise = "the list is never looked at again";
            within(60, otherwise, || matches!(attributes(), Err(vouch_vfs::Error::Io(_))));
            unmount(&dead);
            let is_shared = attributes().is_err();
            within(60, otherwise, || attributes().is_ok());
            if is_shared {
                return;
            }
        }
        panic!("each call looks at all snapshots");
    });
}
