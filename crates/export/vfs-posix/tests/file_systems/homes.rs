//! One file has one identity through all exports, and files of different file systems never share
//! one.

use std::path::Path;

use vouch_vfs::{Caller, FileId, FileSystem as _, SystemId};
use vouch_vfs_posix::{Options, PosixFs};

use crate::fixture::{Short as _, alone, export, image, memory, mount, refused, run, with_names};

fn home(fs: &PosixFs, path: &str) -> (SystemId, Vec<u8>) {
    let mut id: FileId = fs.root();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        id =
            fs.find(&Caller::root(), &id, name).unwrap_or_else(|error| panic!("{path}: {error}")).0;
    }
    let home = fs.home(&id);
    (home.system, id.as_bytes()[home.own_from..].to_vec())
}

fn plain(path: &Path) -> PosixFs {
    export(path, Options::default())
}

fn crossing(path: &Path) -> PosixFs {
    export(path, Options { cross_mounts: true, ..Options::default() })
}

#[test]
#[ignore = "needs root"]
fn file_has_one_identity_through_nested_and_bind_exports() {
    alone(
        "homes::file_has_one_identity_through_nested_and_bind_exports",
        &["mkfs.ext4"],
        |above| {
            let root = above.join("root");
            image("ext4", &[], &root);
            std::fs::create_dir_all(root.join("a/b")).expect("directories");
            for name in ["a/b/file", "a/b/other"] {
                std::fs::write(root.join(name), name).expect("a file");
            }
            std::fs::hard_link(root.join("a/b/file"), root.join("a/link")).expect("a link");
            std::os::unix::fs::symlink(root.join("a/b"), above.join("symbolic")).expect("a link");
            mount("none", "bind", &root.join("a/b"), &above.join("bound"));
            memory(&above.join("m"));
            mount("none", "bind", &root.join("a"), &above.join("m/below"));
            let the_file = home(&plain(&root), "a/b/file");
            for (fs, path) in [
                (plain(&root), "a/link"),
                (plain(&root.join("a")), "b/file"),
                (plain(&root.join("a/b")), "file"),
                (plain(&above.join("symbolic")), "file"),
                (plain(&above.join("bound")), "file"),
                (crossing(&above.join("m")), "below/b/file"),
            ] {
                assert_eq!(home(&fs, path), the_file, "{path}");
            }
            assert_eq!(home(&plain(&root), "a/b"), home(&plain(&root.join("a/b")), ""));
            assert_ne!(home(&plain(&root), "a/b/other"), the_file);
        },
    );
}

#[test]
#[ignore = "needs root"]
fn files_of_copied_file_systems_differ() {
    alone("homes::files_of_copied_file_systems_differ", &["mkfs.ext4"], |above| {
        let (one, two) = (above.join("one"), above.join("two"));
        image("ext4", &[], &one);
        std::fs::write(one.join("file"), "in both").expect("a file");
        run("umount", [&one]).expect("the file is unused");
        std::fs::copy(one.with_extension("image"), two.with_extension("image"))
            .expect("copying succeeds");
        for point in [&one, &two] {
            mount("ext4", "loop", &point.with_extension("image"), point);
        }
        let (first, second) = (home(&plain(&one), "file"), home(&plain(&two), "file"));
        assert_eq!(first.1, second.1);
        assert_ne!(first.0, second.0);
        // Identities in the copy would be ambiguous.
        mount("none", "bind", &two, &one.join("below"));
        let fs = crossing(&one);
        let (covered, _) = fs
            .find(&Caller::root(), &fs.root(), "below")
            .expect("the covered directory is visible");
        refused!(fs.find(&Caller::root(), &covered, "file"), NotFound);
    });
}

#[test]
#[ignore = "needs root"]
fn subvolume_file_has_one_identity_through_all_exports() {
    alone(
        "homes::subvolume_file_has_one_identity_through_all_exports",
        &["mkfs.btrfs", "btrfs"],
        |above| {
            let root = above.join("root");
            image("btrfs", &[], &root);
            run("btrfs", ["subvolume", "create", &root.join("sub").to_string_lossy()])
                .expect("a subvolume can be made");
            for name in ["sub/file", "file"] {
                std::fs::write(root.join(name), name).expect("a file");
            }
            let (outer, inner) = (plain(&root), plain(&root.join("sub")));
            assert_eq!(home(&outer, "sub/file"), home(&inner, "file"));
            assert_ne!(home(&outer, "file"), home(&inner, "file"));
        },
    );
}

#[test]
#[ignore = "needs root"]
fn files_without_handles_are_distinguished() {
    alone("homes::files_without_handles_are_distinguished", &[], |above| {
        crate::fixture::overlay(&above.join("o"));
        std::fs::create_dir(above.join("o/d")).expect("a directory");
        for name in ["d/file", "file"] {
            std::fs::write(above.join("o").join(name), name).expect("a file");
        }
        let outer = export(&above.join("o"), with_names(&above.join("names one")));
        let inner = export(&above.join("o/d"), with_names(&above.join("names two")));
        assert_eq!(home(&outer, "d/file"), home(&inner, "file"));
        assert_ne!(home(&outer, "file"), home(&inner, "file"));
    });
}
