//! Several calls at once for one directory.

use std::sync::atomic::{AtomicBool, Ordering};

use vouch_vfs::{Error, FileId, FileSystem as _, Name, NewNode, SetAttributes};
use vouch_vfs_posix::Options;

use crate::fixture::{Short as _, export};
use crate::snapshots::me;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a name")
}

/// RFC 8881, section 18.4.4: NOENT is only for a directory that is gone.
#[test]
fn object_that_is_moved_at_once_was_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let fs = export(directory.path(), Options::default());
    let (root, is_done) = (fs.root(), AtomicBool::new(false));
    std::thread::scope(|threads| {
        for moved in ["one", "two"] {
            let (fs, root, is_done) = (&fs, &root, &is_done);
            threads.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    for outcome in [
                        fs.rename(&me(), root, name("made"), root, name(moved), None).map(drop),
                        fs.remove(&me(), root, name(moved), None).map(drop),
                    ] {
                        assert!(matches!(outcome, Ok(()) | Err(Error::NotFound)), "{outcome:?}");
                    }
                }
            });
        }
        for node in [NewNode::Directory, NewNode::Symlink(b"target"), NewNode::Fifo] {
            for _ in 0..5000 {
                let made = fs.make(&me(), &root, name("made"), node, &SetAttributes::default());
                let is_right = matches!(made, Ok(_) | Err(Error::Exists));
                if !is_right {
                    is_done.store(true, Ordering::Relaxed);
                    panic!("{node:?}: {:?}", made.map(drop));
                }
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

/// ext4 of Linux 6.18 says ENOMEM for a removed file while another one gets its inode number.
#[test]
#[ignore = "needs root"]
fn removed_file_is_stale_while_its_inode_number_is_given_again() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let fs = export(directory.path(), Options::default());
    let (root, is_done) = (fs.root(), AtomicBool::new(false));
    let removed: Vec<FileId> = (0..8)
        .map(|number| {
            let name = format!("old {number}");
            let made = fs.new_file(&me(), &root, &name, 0o600).expect("a file").id;
            fs.remove(&me(), &root, Name::new(name.as_bytes()).expect("a name"), None)
                .expect("removed");
            made
        })
        .collect();
    std::thread::scope(|threads| {
        for number in 0..2 {
            let (path, is_done) = (directory.path().join(format!("new {number}")), &is_done);
            threads.spawn(move || {
                while !is_done.load(Ordering::Relaxed) {
                    std::fs::write(&path, b"").expect("a file");
                    std::fs::remove_file(&path).expect("removed");
                }
            });
        }
        let mut wrong = None;
        for _ in 0..20_000 {
            let mut attributes = removed.iter().map(|id| fs.attributes_of(id));
            wrong = wrong.or_else(|| attributes.find(|found| !matches!(found, Err(Error::Stale))));
        }
        is_done.store(true, Ordering::Relaxed);
        assert!(wrong.is_none(), "{wrong:?}");
    });
}
