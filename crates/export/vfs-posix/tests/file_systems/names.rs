//! Without file handles, files are found by stored names.

use std::path::Path;

use vouch_vfs::{Caller, FileSystem as _};
use vouch_vfs_posix::{ExportError, Options, PosixFs, leave_callers};

use crate::fixture::{
    Short as _, alone, content, export, named, overlay, put, refused, with_names,
};

fn stack(above: &Path) -> std::path::PathBuf {
    let root = above.join("root");
    std::fs::create_dir_all(root.with_extension("lower")).expect("a directory");
    std::fs::write(root.with_extension("lower").join("old"), "from below").expect("a file");
    overlay(&root);
    root
}

#[test]
#[ignore = "needs root"]
fn handleless_export_needs_store_and_reports_weaker_ids() {
    alone("names::handleless_export_needs_store_and_reports_weaker_ids", &[], |above| {
        let root = stack(above);
        assert!(matches!(PosixFs::open(&root, Options::default()), Err(ExportError::NeedsIds(_))));
        assert!(!export(&root, with_names(&above.join("names"))).traits().persistent_ids);
        assert!(export(above, Options::default()).traits().persistent_ids);
        let checked = Options { subtree_check: true, ..with_names(&above.join("others")) };
        assert!(!export(above, checked).traits().persistent_ids);
    });
}

#[test]
#[ignore = "needs root"]
fn copy_up_keeps_identity() {
    alone("names::copy_up_keeps_identity", &[], |above| {
        let root = stack(above);
        let store = above.join("names");
        let fs = export(&root, with_names(&store));
        let one = Caller::root();
        let (old, _) = fs.find(&one, &fs.root(), "old").expect("the file exists");
        put(&*fs.opened(&one, &old).expect("opened"), 0, b"FROM").expect("written");
        assert_eq!(fs.find(&one, &fs.root(), "old").expect("the file exists").0, old);
        drop(fs);
        let fs = export(&root, with_names(&store));
        assert_eq!(content(&*fs.opened(&one, &old).expect("found by its name")), b"FROM below");
    });
}

#[test]
#[ignore = "needs root"]
fn renamed_files_are_found_after_restart() {
    alone("names::renamed_files_are_found_after_restart", &[], |above| {
        let root = stack(above);
        let store = above.join("names");
        let one = Caller::root();
        let fs = export(&root, with_names(&store));
        let deep = fs.new_directory(&one, &fs.root(), "deep", 0o755).expect("made");
        let deeper = fs.new_directory(&one, &deep, "deeper", 0o755).expect("made");
        let new = |name: &str| {
            let made = fs.new_file(&one, &deeper, name, 0o644).expect("made");
            put(&*made.open, 0, name.as_bytes()).expect("written");
            made.id
        };
        let (stays, renamed, moved, lost, gone) =
            (new("stays"), new("renamed"), new("moved"), new("lost"), new("gone"));
        let kept = fs.find(&one, &fs.root(), "old").expect("the file exists").0;
        fs.rename(&one, &deeper, named("moved"), &fs.root(), named("moved here"), None)
            .expect("renamed");
        fs.rename(&one, &fs.root(), named("deep"), &fs.root(), named("deep now"), None)
            .expect("renamed");
        fs.remove(&one, &deeper, named("gone"), None).expect("removed");
        drop(fs);

        // While no server runs: a search finds a rename within a directory, but no move.
        leave_callers().expect("switching to root succeeds");
        let deeper_path = root.join("deep now/deeper");
        std::fs::rename(deeper_path.join("renamed"), deeper_path.join("renamed behind our back"))
            .expect("renamed");
        std::fs::rename(deeper_path.join("lost"), root.join("lost")).expect("renamed");
        let fs = export(&root, with_names(&store));
        for (id, what) in [(stays, "stays"), (renamed, "renamed"), (moved, "moved")] {
            assert_eq!(
                content(&*fs.opened(&one, &id).unwrap_or_else(|error| panic!("{what}: {error}"))),
                what.as_bytes()
            );
        }
        assert_eq!(fs.attributes_of(&kept).expect("found by its name").size, 10);
        refused!(fs.attributes_of(&lost), Stale);
        refused!(fs.attributes_of(&gone), Stale);
        assert_eq!(fs.find(&one, &fs.root(), "lost").expect("the file exists").0, lost);
        assert_eq!(fs.attributes_of(&lost).expect("the value is known").size, 4);
    });
}

#[test]
#[ignore = "needs root"]
fn killed_server_loses_no_name() {
    alone("names::killed_server_loses_no_name", &[], |above| {
        let root = stack(above);
        let store = above.join("names.redb");
        let fs = export(&root, with_names(&store));
        let one = Caller::root();
        let made: Vec<_> = (0..50)
            .map(|n| fs.new_file(&one, &fs.root(), &format!("file {n}"), 0o644).expect("made").id)
            .collect();
        fs.rename(&one, &fs.root(), named("file 1"), &fs.root(), named("moved"), None)
            .expect("renamed");
        fs.remove(&one, &fs.root(), named("file 2"), None).expect("removed");
        leave_callers().expect("switching to root succeeds");
        for end in ["redb", "log"] {
            std::fs::copy(store.with_extension(end), above.join(format!("left.{end}")))
                .expect("copied");
        }
        let again = export(&root, with_names(&above.join("left.redb")));
        for (n, id) in made.iter().enumerate() {
            if n == 2 {
                refused!(again.attributes_of(id), Stale);
            } else {
                again.attributes_of(id).unwrap_or_else(|error| panic!("file {n}: {error}"));
            }
        }
    });
}
