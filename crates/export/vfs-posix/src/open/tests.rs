//! Descriptors for syncs, deferred writes, deletion at close.

use std::time::Duration;

use tempfile::TempDir;
use vouch_testkit::within;
use vouch_vfs::{CreateHow, FileSystem as _, Name, SetAttributes};

use super::*;
use crate::{IdStore, Options, PosixFs, can_serve_others, leave_callers};

fn opened(body: impl FnOnce(&PosixFs, &PosixOpen)) {
    let directory =
        TempDir::new_in(env!("CARGO_MANIFEST_DIR")).expect("creating a directory succeeds");
    let state = TempDir::new().expect("creating a directory succeeds");
    let ids = (!can_serve_others()).then(|| {
        Arc::new(IdStore::open(&state.path().join("ids")).expect("creating a store succeeds"))
    });
    let fs = PosixFs::open(
        directory.path(),
        Options { subtree_check: ids.is_some(), ids, ..Options::default() },
    )
    .expect("the export succeeds");
    let me =
        Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw(), []);
    let name = Name::new(b"f").expect("the name is valid");
    let both = OpenAccess { read: true, write: true };
    let made = fs
        .create(&me, &fs.root(), name, CreateHow::Guarded, &SetAttributes::default(), both)
        .expect("creation succeeds");
    body(&fs, made.open.as_any().downcast_ref().expect("the identity belongs to this file system"));
    drop(made);
    leave_callers().expect("a process may keep its own identity");
}

#[test]
fn concurrent_syncs_have_separate_descriptors() {
    opened(|_, open| {
        let first = open.sync_descriptor().unwrap();
        assert!(matches!(first, SyncDescriptor::Shared(_)));
        let second = open.sync_descriptor().unwrap();
        let SyncDescriptor::Own(own) = &second else {
            panic!("the first sync uses the shared descriptor")
        };
        let inode = |fd: BorrowedFd<'_>| stat(fd).unwrap().stx_ino;
        assert_eq!(inode(own.as_fd()), inode(open.descriptor(&first)));
        fs::seek(own, SeekFrom::Start(7)).unwrap();
        assert_eq!(fs::seek(open.descriptor(&first), SeekFrom::Current(0)), Ok(0));
        for stability in [Stability::DataSync, Stability::FileSync] {
            assert_eq!(open.write(0, b"data", stability, Blocking::Allowed).unwrap().len, 4);
        }
        open.commit(0, 0, Blocking::Allowed).unwrap();
        drop(first);
        assert!(matches!(open.sync_descriptor().unwrap(), SyncDescriptor::Shared(_)));
    });
}

#[test]
fn throttled_writes_run_on_threads_that_may_block() {
    opened(|_, open| {
        assert!(!open.node.mount.in_memory, "this repository is on a disk");
        let write = |blocking| open.write(0, b"data", Stability::Unstable, blocking);
        within(60, "a write waits", || write(Blocking::Forbidden).is_ok());
        open.node.mount.pressure.note(Duration::from_secs(1), || mono_ms() + 3_600_000);
        assert!(matches!(write(Blocking::Forbidden), Err(Error::WouldBlock)));
        assert_eq!(write(Blocking::Allowed).unwrap().len, 4);
    });
}

#[test]
fn close_frees_only_unnamed_files() {
    opened(|fs, open| {
        open.truncate(1 << 20).unwrap();
        assert_eq!(open.frees_when_closed(), 0);
        let me = open.caller.clone();
        let (_, gone) =
            fs.remove(&me, &fs.root(), Name::new(b"f").expect("the name is valid"), None).unwrap();
        assert_eq!(gone, Some(open.node.id));
        assert_eq!(open.frees_when_closed(), 1 << 20);
    });
}
