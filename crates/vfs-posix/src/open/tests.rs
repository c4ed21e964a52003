//! What others can't see of an open file: by which descriptor it syncs, when it writes elsewhere,
//! and what goes with it.

use std::time::Duration;

use tempfile::TempDir;
use vouch_vfs::{CreateHow, FileSystem as _, Name, SetAttributes};

use super::*;
use crate::{IdStore, Options, PosixFs, can_serve_others, leave_callers};

/// A new file on a disk, open for writing.
fn opened(body: impl FnOnce(&PosixFs, &PosixOpen)) {
    let directory = TempDir::new_in(env!("CARGO_MANIFEST_DIR")).expect("a directory can be made");
    let state = TempDir::new().expect("a directory can be made");
    let ids = (!can_serve_others()).then(|| Arc::new(IdStore::open(&state.path().join("ids")).expect("a store can be made")));
    let fs =
        PosixFs::open(directory.path(), Options { subtree_check: ids.is_some(), ids, ..Options::default() }).expect("it can be exported");
    let me = Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw(), []);
    let name = Name::new(b"f").expect("it is a name");
    let both = OpenAccess { read: true, write: true };
    let made = fs.create(&me, &fs.root(), name, CreateHow::Guarded, &SetAttributes::default(), both).expect("it can be made");
    body(&fs, made.open.as_any().downcast_ref().expect("it is one of ours"));
    drop(made);
    leave_callers().expect("one may be oneself");
}

#[test]
fn who_makes_data_durable_at_the_same_time_has_a_descriptor_of_his_own() {
    opened(|_, open| {
        let first = open.cursor().unwrap();
        assert!(matches!(first, Cursor::Shared(_)));
        let second = open.cursor().unwrap();
        let Cursor::Own(own) = &second else { panic!("the first has the other") };
        let inode = |fd: BorrowedFd<'_>| stat(fd).unwrap().stx_ino;
        assert_eq!(inode(own.as_fd()), inode(open.descriptor(&first)));
        // Each moves for itself: they are two open files to the system, which tells each of what is lost.
        fs::seek(own, SeekFrom::Start(7)).unwrap();
        assert_eq!(fs::seek(open.descriptor(&first), SeekFrom::Current(0)), Ok(0));
        for stability in [Stability::DataSync, Stability::FileSync] {
            assert_eq!(open.write(0, b"data", stability, Patience::Any).unwrap().len, 4);
        }
        open.commit(0, 0, Patience::Any).unwrap();
        drop(first);
        assert!(matches!(open.cursor().unwrap(), Cursor::Shared(_)));
    });
}

#[test]
fn where_writers_are_held_up_only_those_write_that_may_sleep() {
    opened(|_, open| {
        if open.node.mount.in_memory {
            return;
        }
        let write = |patience| open.write(0, b"data", Stability::Unstable, patience);
        // A machine that is busy may hold a writer up.
        let until = Instant::now() + Duration::from_secs(60);
        while write(Patience::None).is_err() {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(50));
        }
        open.node.mount.pressure.note(Duration::from_secs(1), || mono_ms() + 3_600_000);
        assert!(matches!(write(Patience::None), Err(Error::WouldBlock)));
        assert_eq!(write(Patience::Any).unwrap().len, 4);
    });
}

#[test]
fn what_goes_with_a_close_is_known_of_files_without_a_name() {
    opened(|fs, open| {
        open.truncate(1 << 20).unwrap();
        assert_eq!(open.frees_when_closed(), 0);
        let me = open.caller.clone();
        let (_, gone) = fs.remove(&me, &fs.root(), Name::new(b"f").expect("it is a name")).unwrap();
        assert_eq!(gone, Some(open.node.id));
        assert_eq!(open.frees_when_closed(), 1 << 20);
    });
}
