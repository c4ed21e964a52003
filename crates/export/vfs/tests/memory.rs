//! Conformance rules and injected faults.

use vouch_vfs::conformance::Fixture;
use vouch_vfs::memory::{Call, MemoryFs};
use vouch_vfs::{
    Blocking, Caller, CreateHow, Error, FileSystem, Name, OpenAccess, ReadInto, SetAttributes,
    Stability,
};

fn memory() -> Fixture {
    Fixture {
        fs: std::sync::Arc::new(MemoryFs::new()),
        owner: Caller::root(),
        any_caller: true,
        keep: Box::new(()),
    }
}

vouch_vfs::conformance_tests!(conformance, memory);

const BOTH: OpenAccess = OpenAccess { read: true, write: true };

#[test]
fn injected_faults_are_returned() {
    let fs = MemoryFs::new();
    fs.set_fault(|call, _| (call == Call::Attributes).then_some(Error::Quota));
    assert!(matches!(fs.attributes(&fs.root(), Blocking::Allowed), Err(Error::Quota)));
    fs.clear_fault();
    assert!(fs.attributes(&fs.root(), Blocking::Allowed).is_ok());
}

#[test]
fn full_disk_and_cold_data_are_reported() {
    let fs = MemoryFs::new();
    let name = Name::new(b"file").expect("a name");
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let made = fs
        .create(&Caller::root(), &fs.root(), name, CreateHow::Guarded, &set, BOTH)
        .expect("creation succeeds");
    fs.set_capacity(8192);
    assert!(made.open.write(0, &[1; 8192], Stability::Unstable, Blocking::Forbidden).is_ok());
    assert!(matches!(
        made.open.write(8192, b"x", Stability::Unstable, Blocking::Forbidden),
        Err(Error::NoSpace)
    ));
    fs.evict_caches();
    let read = |blocking| {
        made.open.read(0, 10, ReadInto { bytes: &mut Vec::new(), span_allowed: true }, blocking)
    };
    assert!(matches!(read(Blocking::Forbidden), Err(Error::WouldBlock)));
    assert!(read(Blocking::Allowed).is_ok() && read(Blocking::Forbidden).is_ok());
    fs.set_slow_sync(true);
    assert!(matches!(made.open.commit(0, 0, Blocking::Forbidden), Err(Error::WouldBlock)));
    assert!(made.open.commit(0, 0, Blocking::Allowed).is_ok());
    assert_eq!((fs.open_count(), fs.file_count()), (1, 2));
    fs.remove(&Caller::root(), &fs.root(), name, None).expect("the removal succeeds");
    drop(made);
    assert_eq!((fs.open_count(), fs.file_count()), (0, 1));
}

#[test]
fn read_only_file_system_refuses_changes() {
    let fs = MemoryFs::new();
    let set = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
    let root = Caller::root();
    let directory = fs
        .make(
            &root,
            &fs.root(),
            Name::new(b"d").expect("a name"),
            vouch_vfs::NewNode::Directory,
            &set,
        )
        .expect("made")
        .0;
    let made = fs
        .create(&root, &directory, Name::new(b"f").expect("a name"), CreateHow::Guarded, &set, BOTH)
        .expect("made");
    made.open.write(0, b"content", Stability::Unstable, Blocking::Allowed).expect("written");
    fs.set_read_only(true);
    vouch_vfs::conformance::check_read_only(&fs, &root);
}
