//! Nested exports, exports of one directory, and exports that a reload replaces.

use std::net::SocketAddr;
use std::sync::Arc;

use vouch_nfs4::op::{self, Args, Results};
use vouch_nfs4::{Cookie, Filehandle, Name, Stateid, Status, Verifier};
use vouch_nfs4_server::{ClientAccess, ClientMatcher, Export, Exports};
use vouch_vfs::{Caller, FileSystem as _, NewNode, SetAttributes};

use crate::delegations::bind_backchannel;
use crate::fixture::{Client, Fixture, MemoryFs, export, getattr, lookup, mode, open_args, sys_access};

struct DenyAll;

impl ClientMatcher for DenyAll {
    fn access_for(&self, _: SocketAddr) -> Option<Arc<ClientAccess>> {
        None
    }
}

fn without_clients(export: Export) -> Export {
    Export { clients: Arc::new(DenyAll), ..export }
}

fn list_names(client: &mut Client<'_>, path: &[&str]) -> Vec<String> {
    let args = op::ReaddirArgs {
        cookie: Cookie(0),
        verifier: Verifier([0; 8]),
        dir_count: 0,
        max_count: 8192,
        wanted: vouch_nfs4::Bitmap::of(&[1, 8, 20]),
    };
    let (_, list) = client.run_at(path, &[Args::Readdir(args)]);
    let [Results::Readdir(Ok(ok))] = &list[..] else { panic!("{path:?}: {list:?}") };
    ok.entries.iter().map(|entry| String::from_utf8_lossy(entry.name.0).into_owned()).collect()
}

fn filehandle(client: &mut Client<'_>, path: &[&str], ops: &[Args<'_>]) -> Filehandle {
    let all = [ops, &[Args::Getfh]].concat();
    let (_, list) = client.run_at(path, &all);
    let Some(Results::Getfh(Ok(ok))) = list.last() else { panic!("{path:?}: {list:?}") };
    ok.handle
}

fn make_directory(files: &MemoryFs, name: &str) {
    let (name, set) = (vouch_vfs::Name::new(name.as_bytes()).unwrap(), SetAttributes { mode: Some(0o755), ..SetAttributes::default() });
    files.make(&Caller::root(), &files.root(), name, NewNode::Directory, &set).unwrap();
}

// RFC 8881, section 7.3: the pseudo file system leads to each export that a client may see.
#[test]
fn inner_export_is_reachable_below_inaccessible_export() {
    let (upper, inner, other) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    for name in ["private", "x"] {
        make_directory(&upper, name);
    }
    let exports = vec![
        without_clients(export(1, &["srv"], &upper, sys_access())),
        export(2, &["srv", "x", "in"], &inner, sys_access()),
        without_clients(export(3, &["srv", "y"], &other, sys_access())),
    ];
    let fixture = Fixture::with_exports(inner, exports);
    let mut client = Client::new(&fixture, "one", 0);
    assert_eq!(list_names(&mut client, &[]), ["srv"]);
    assert_eq!(list_names(&mut client, &["srv"]), ["x"]);
    assert_eq!(list_names(&mut client, &["srv", "x"]), ["in"]);
    assert_eq!(client.status(&["srv", "x", "in"], &[open_args("f", Some(&mode(0o644)))]), Status::OK);
    for (path, name) in [(&["srv"][..], "private"), (&["srv"][..], "y"), (&["srv", "x"][..], "f")] {
        assert_eq!(client.status(path, &[lookup(name)]), Status::NOENT, "{name}");
    }
    // LOOKUPP leads back the same way.
    let path_handles = [&["srv", "x", "in"][..], &["srv", "x"], &["srv"], &[]].map(|path| filehandle(&mut client, path, &[]));
    for (up, expected) in path_handles.into_iter().enumerate() {
        assert_eq!(filehandle(&mut client, &["srv", "x", "in"], &vec![Args::Lookupp; up]), expected);
    }
}

#[test]
fn lookup_of_nested_export_passes_through_outer_export() {
    let (upper, inner) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    for name in ["other", "x"] {
        make_directory(&upper, name);
    }
    let exports = vec![export(1, &["srv"], &upper, sys_access()), export(2, &["srv", "x"], &inner, sys_access())];
    let fixture = Fixture::with_exports(inner, exports);
    let mut client = Client::new(&fixture, "one", 0);
    assert_eq!(list_names(&mut client, &["srv"]), ["other", "x"]);
    let (srv, back) = (filehandle(&mut client, &["srv"], &[]), filehandle(&mut client, &["srv", "x"], &[Args::Lookupp]));
    assert_eq!(srv, back);
}

#[test]
fn inaccessible_root_export_hides_no_other_export() {
    let (root, inner) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    let fixture = Fixture::with_exports(
        inner.clone(),
        vec![without_clients(export(0, &[], &root, sys_access())), export(2, &["in"], &inner, sys_access())],
    );
    let mut client = Client::new(&fixture, "one", 0);
    assert_eq!(list_names(&mut client, &[]), ["in"]);
    assert_eq!(client.status(&["in"], &[Args::Lookupp, Args::Getfh]), Status::OK);
}

// The client may use the outermost and innermost exports, but not the middle one.
#[test]
fn path_to_inner_export_skips_inaccessible_export() {
    let (upper, middle, inner) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    make_directory(&upper, "b");
    make_directory(&middle, "secret");
    make_directory(&middle, "c");
    let exports = vec![
        export(1, &["a"], &upper, sys_access()),
        without_clients(export(2, &["a", "b"], &middle, sys_access())),
        export(3, &["a", "b", "c"], &inner, sys_access()),
    ];
    let fixture = Fixture::with_exports(inner, exports);
    let mut client = Client::new(&fixture, "one", 0);
    assert_eq!(list_names(&mut client, &["a"]), ["b"]);
    assert_eq!(list_names(&mut client, &["a", "b"]), ["c"]);
    assert_eq!(client.status(&["a", "b", "c"], &[open_args("f", Some(&mode(0o644)))]), Status::OK);
    let (a, back) = (filehandle(&mut client, &["a"], &[]), filehandle(&mut client, &["a", "b", "c"], &[Args::Lookupp, Args::Lookupp]));
    assert_eq!(a, back);
}

#[test]
fn nested_export_needs_no_directory_in_outer_export() {
    let (upper, inner) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    let exports = vec![export(1, &["srv"], &upper, sys_access()), export(2, &["srv", "no", "such", "in"], &inner, sys_access())];
    let fixture = Fixture::with_exports(inner, exports);
    let mut client = Client::new(&fixture, "one", 0);
    assert_eq!(list_names(&mut client, &["srv", "no"]), ["such"]);
    assert_eq!(client.status(&["srv", "no", "such", "in"], &[open_args("f", Some(&mode(0o644)))]), Status::OK);
    assert_eq!(client.status(&["srv", "no"], &[lookup("other")]), Status::NOENT);
    let (srv, back) = (filehandle(&mut client, &["srv"], &[]), filehandle(&mut client, &["srv", "no"], &[Args::Lookupp]));
    assert_eq!(srv, back);
    assert_eq!(fixture.server.detours(), [("memory 2".into(), "memory 1".into())]);
}

fn lock(stateid: Stateid) -> Args<'static> {
    let open = op::NewLockOwner {
        open_seq: vouch_nfs4::OwnerSeq(0),
        open: stateid,
        lock_seq: vouch_nfs4::OwnerSeq(0),
        owner: vouch_nfs4::StateOwner { client: vouch_nfs4::ClientId(0), owner: vouch_nfs4::Bytes(b"l") },
    };
    Args::Lock(op::LockArgs { kind: op::LockType::Write, reclaim: false, offset: 0, length: 10, locker: op::Locker::New(open) })
}

fn open_file(client: &mut Client<'_>, path: &[&str], attrs: bool) -> Stateid {
    let mode = mode(0o644);
    let (_, list) = client.run_at(path, &[open_args("f", attrs.then_some(&mode))]);
    let [Results::Open(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    ok.stateid
}

#[test]
fn exports_of_one_directory_share_locks_and_files() {
    let files = Arc::new(MemoryFs::new());
    let fixture =
        Fixture::with_exports(files.clone(), vec![export(1, &["a"], &files, sys_access()), export(2, &["b"], &files, sys_access())]);
    let (mut one, mut two) = (Client::new(&fixture, "one", 0), Client::new(&fixture, "two", 0));
    let through_a = open_file(&mut one, &["a"], true);
    let through_b = open_file(&mut two, &["b"], false);
    assert_eq!(one.status(&["a", "f"], &[lock(through_a)]), Status::OK);
    assert_eq!(two.status(&["b", "f"], &[lock(through_b)]), Status::DENIED);
    // The filehandle names the export, and a stateid is valid only through its own export.
    assert_ne!(filehandle(&mut one, &["a", "f"], &[]), filehandle(&mut one, &["b", "f"], &[]));
    let write = |stateid| Args::Write(op::WriteArgs { stateid, offset: 0, stable: op::StableHow::FileSync, data: vouch_nfs4::Bytes(b"x") });
    assert_eq!(one.status(&["b", "f"], &[write(through_a)]), Status::BAD_STATEID);
    assert_eq!(one.status(&["a", "f"], &[write(through_a)]), Status::OK);
    // A file removed through one export is gone from both.
    assert_eq!(two.status(&["b"], &[Args::Remove(op::RemoveArgs { name: Name(b"f") })]), Status::OK);
    assert_eq!(one.status(&["a", "f"], &[]), Status::NOENT);
}

#[test]
fn open_through_other_export_recalls_delegation() {
    let files = Arc::new(MemoryFs::new());
    let fixture =
        Fixture::with_exports(files.clone(), vec![export(7, &["export"], &files, sys_access()), export(2, &["b"], &files, sys_access())]);
    let (mut one, mut two) = (Client::new(&fixture, "one", 0), Client::new(&fixture, "two", 0));
    bind_backchannel(&one);
    let (_, _, delegation) = crate::delegations::open_with_want(&mut one, op::ShareAccess::WANT_WRITE_DELEG, Some(&mode(0o644)));
    assert!(matches!(delegation, op::Delegation::Write(_)), "{delegation:?}");
    assert_eq!(two.status(&["b"], &[open_args("f", None)]), Status::DELAY);
}

#[test]
fn replacing_export_ends_opens_and_makes_handles_stale() {
    let (before, after) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    let fixture =
        Fixture::with_exports(before.clone(), vec![export(1, &["a"], &before, sys_access()), export(2, &["b"], &before, sys_access())]);
    let mut one = Client::new(&fixture, "one", 0);
    let (through_a, through_b) = (open_file(&mut one, &["a"], true), open_file(&mut one, &["b"], false));
    let [old_a, old_b] = ["a", "b"].map(|name| filehandle(&mut one, &[name, "f"], &[]));
    assert_eq!(before.open_count(), 2);
    let export_again = |files: &Arc<MemoryFs>, id| export(id, &[if id == 1 { "a" } else { "b" }], files, sys_access());
    // A reload without changes keeps the opens.
    drop(fixture.server.replace_exports(Exports::new([export_again(&before, 1), export_again(&before, 2)]).unwrap()));
    assert_eq!(before.open_count(), 2);
    drop(fixture.server.replace_exports(Exports::new([export_again(&after, 1)]).unwrap()));
    assert_eq!(before.open_count(), 0, "the old directory has no open files");
    let read = |handle: &Filehandle, stateid| {
        [Args::Putfh(op::PutfhArgs { handle: *handle }), Args::Read(op::ReadArgs { stateid, offset: 0, count: 1 })]
    };
    // The new file system never issued this filehandle.
    let (status, _) = one.run(&read(&old_a, through_a));
    assert!(matches!(status, Status::STALE | Status::BADHANDLE | Status::BAD_STATEID), "{status:?}");
    assert_eq!(one.run(&read(&old_b, through_b)).0, Status::STALE);
    assert_eq!(fixture.server.status(fixture.now()).clients[0].opens, 0);
    assert_eq!(one.status(&["a"], &[getattr(&[1])]), Status::OK);
}
