//! Exports in their places: one below another, for clients that may see one of them alone, where
//! there is no directory to go through, two of one directory, and those that are replaced.

use std::net::SocketAddr;
use std::sync::Arc;

use vouch_nfs4::op::{self, Args, Results};
use vouch_nfs4::{Cookie, Filehandle, Name, Stateid, Status, Verifier};
use vouch_nfs4_server::{ClientAccess, ClientMatcher, Export, Exports};
use vouch_vfs::{Caller, FileSystem as _, NewNode, SetAttributes};

use crate::delegated::bind;
use crate::world::{Client, MemoryFs, World, access, export, getattr, lookup, mode, open_args};

struct Nobody;

impl ClientMatcher for Nobody {
    fn access_for(&self, _: SocketAddr) -> Option<Arc<ClientAccess>> {
        None
    }
}

fn hidden(export: Export) -> Export {
    Export { clients: Arc::new(Nobody), ..export }
}

fn names(client: &mut Client<'_>, path: &[&str]) -> Vec<String> {
    let args = op::ReaddirArgs {
        cookie: Cookie(0),
        verifier: Verifier([0; 8]),
        dir_count: 0,
        max_count: 8192,
        wanted: vouch_nfs4::Bitmap::of(&[1, 8, 20]),
    };
    let (_, list) = client.at(path, &[Args::Readdir(args)]);
    let [Results::Readdir(Ok(ok))] = &list[..] else { panic!("{path:?}: {list:?}") };
    ok.entries.iter().map(|entry| String::from_utf8_lossy(entry.name.0).into_owned()).collect()
}

fn handle(client: &mut Client<'_>, path: &[&str], ops: &[Args<'_>]) -> Filehandle {
    let all = [ops, &[Args::Getfh]].concat();
    let (_, list) = client.at(path, &all);
    let Some(Results::Getfh(Ok(ok))) = list.last() else { panic!("{path:?}: {list:?}") };
    ok.handle
}

fn make_directory(files: &MemoryFs, name: &str) {
    let (name, set) = (vouch_vfs::Name::new(name.as_bytes()).unwrap(), SetAttributes { mode: Some(0o755), ..SetAttributes::default() });
    files.make(&Caller::root(), &files.root(), name, NewNode::Directory, &set).unwrap();
}

// RFC 8881, section 7.3: the pseudo file system leads to each export that a client may see.
#[test]
fn an_export_below_one_that_is_not_for_the_client_is_reached_and_nothing_else_is() {
    let (upper, inner, other) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    for name in ["private", "x"] {
        make_directory(&upper, name);
    }
    let exports = vec![
        hidden(export(1, &["srv"], &upper, access())),
        export(2, &["srv", "x", "in"], &inner, access()),
        hidden(export(3, &["srv", "y"], &other, access())),
    ];
    let world = World::with(inner, exports);
    let mut client = Client::new(&world, "one", 0);
    assert_eq!(names(&mut client, &[]), ["srv"]);
    assert_eq!(names(&mut client, &["srv"]), ["x"]);
    assert_eq!(names(&mut client, &["srv", "x"]), ["in"]);
    assert_eq!(client.status(&["srv", "x", "in"], &[open_args("f", Some(&mode(0o644)))]), Status::OK);
    for (path, name) in [(&["srv"][..], "private"), (&["srv"][..], "y"), (&["srv", "x"][..], "f")] {
        assert_eq!(client.status(path, &[lookup(name)]), Status::NOENT, "{name}");
    }
    // And the way back is the one that led there.
    let way = [&["srv", "x", "in"][..], &["srv", "x"], &["srv"], &[]].map(|path| handle(&mut client, path, &[]));
    for (up, expected) in way.into_iter().enumerate() {
        assert_eq!(handle(&mut client, &["srv", "x", "in"], &vec![Args::Lookupp; up]), expected);
    }
}

#[test]
fn who_may_see_the_upper_export_goes_through_it() {
    let (upper, inner) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    for name in ["other", "x"] {
        make_directory(&upper, name);
    }
    let exports = vec![export(1, &["srv"], &upper, access()), export(2, &["srv", "x"], &inner, access())];
    let world = World::with(inner, exports);
    let mut client = Client::new(&world, "one", 0);
    assert_eq!(names(&mut client, &["srv"]), ["other", "x"]);
    let (srv, back) = (handle(&mut client, &["srv"], &[]), handle(&mut client, &["srv", "x"], &[Args::Lookupp]));
    assert_eq!(srv, back);
}

#[test]
fn a_root_export_that_is_not_for_the_client_hides_no_other() {
    let (root, inner) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    let world = World::with(inner.clone(), vec![hidden(export(0, &[], &root, access())), export(2, &["in"], &inner, access())]);
    let mut client = Client::new(&world, "one", 0);
    assert_eq!(names(&mut client, &[]), ["in"]);
    assert_eq!(client.status(&["in"], &[Args::Lookupp, Args::Getfh]), Status::OK);
}

// One below two: the middle one is not for the client, the uppermost and the innermost are.
#[test]
fn the_way_between_two_exports_leads_past_one_that_is_not_for_the_client() {
    let (upper, middle, inner) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    make_directory(&upper, "b");
    make_directory(&middle, "secret");
    make_directory(&middle, "c");
    let exports = vec![
        export(1, &["a"], &upper, access()),
        hidden(export(2, &["a", "b"], &middle, access())),
        export(3, &["a", "b", "c"], &inner, access()),
    ];
    let world = World::with(inner, exports);
    let mut client = Client::new(&world, "one", 0);
    assert_eq!(names(&mut client, &["a"]), ["b"]);
    assert_eq!(names(&mut client, &["a", "b"]), ["c"]);
    assert_eq!(client.status(&["a", "b", "c"], &[open_args("f", Some(&mode(0o644)))]), Status::OK);
    let (a, back) = (handle(&mut client, &["a"], &[]), handle(&mut client, &["a", "b", "c"], &[Args::Lookupp, Args::Lookupp]));
    assert_eq!(a, back);
}

#[test]
fn an_export_whose_directory_is_missing_in_the_upper_one_is_reached_all_the_same() {
    let (upper, inner) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    let exports = vec![export(1, &["srv"], &upper, access()), export(2, &["srv", "no", "such", "in"], &inner, access())];
    let world = World::with(inner, exports);
    let mut client = Client::new(&world, "one", 0);
    assert_eq!(names(&mut client, &["srv", "no"]), ["such"]);
    assert_eq!(client.status(&["srv", "no", "such", "in"], &[open_args("f", Some(&mode(0o644)))]), Status::OK);
    assert_eq!(client.status(&["srv", "no"], &[lookup("other")]), Status::NOENT);
    let (srv, back) = (handle(&mut client, &["srv"], &[]), handle(&mut client, &["srv", "no"], &[Args::Lookupp]));
    assert_eq!(srv, back);
    assert_eq!(world.server.detours(), [("memory 2".into(), "memory 1".into())]);
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

fn opened(client: &mut Client<'_>, path: &[&str], attrs: bool) -> Stateid {
    let mode = mode(0o644);
    let (_, list) = client.at(path, &[open_args("f", attrs.then_some(&mode))]);
    let [Results::Open(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    ok.stateid
}

#[test]
fn two_exports_of_one_directory_meet_in_its_files() {
    let files = Arc::new(MemoryFs::new());
    let world = World::with(files.clone(), vec![export(1, &["a"], &files, access()), export(2, &["b"], &files, access())]);
    let (mut one, mut two) = (Client::new(&world, "one", 0), Client::new(&world, "two", 0));
    let by_a = opened(&mut one, &["a"], true);
    let by_b = opened(&mut two, &["b"], false);
    assert_eq!(one.status(&["a", "f"], &[lock(by_a)]), Status::OK);
    assert_eq!(two.status(&["b", "f"], &[lock(by_b)]), Status::DENIED);
    // The handles are two, for each names the export that rights are of; and a stateid serves by its
    // own.
    assert_ne!(handle(&mut one, &["a", "f"], &[]), handle(&mut one, &["b", "f"], &[]));
    let write = |stateid| Args::Write(op::WriteArgs { stateid, offset: 0, stable: op::StableHow::FileSync, data: vouch_nfs4::Bytes(b"x") });
    assert_eq!(one.status(&["b", "f"], &[write(by_a)]), Status::BAD_STATEID);
    assert_eq!(one.status(&["a", "f"], &[write(by_a)]), Status::OK);
    // What is removed by one is gone by both.
    assert_eq!(two.status(&["b"], &[Args::Remove(op::RemoveArgs { name: Name(b"f") })]), Status::OK);
    assert_eq!(one.status(&["a", "f"], &[]), Status::NOENT);
}

#[test]
fn a_delegation_by_one_export_is_recalled_for_an_open_by_another() {
    let files = Arc::new(MemoryFs::new());
    let world = World::with(files.clone(), vec![export(7, &["export"], &files, access()), export(2, &["b"], &files, access())]);
    let (mut one, mut two) = (Client::new(&world, "one", 0), Client::new(&world, "two", 0));
    bind(&one);
    let (_, _, delegation) = crate::delegated::open(&mut one, op::ShareAccess::WANT_WRITE_DELEG, Some(&mode(0o644)));
    assert!(matches!(delegation, op::Delegation::Write(_)), "{delegation:?}");
    assert_eq!(two.status(&["b"], &[open_args("f", None)]), Status::DELAY);
}

#[test]
fn what_was_opened_by_an_export_ends_with_it_and_one_that_shows_another_directory_is_stale() {
    let (before, after) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    let world = World::with(before.clone(), vec![export(1, &["a"], &before, access()), export(2, &["b"], &before, access())]);
    let mut one = Client::new(&world, "one", 0);
    let (by_a, by_b) = (opened(&mut one, &["a"], true), opened(&mut one, &["b"], false));
    let [old_a, old_b] = ["a", "b"].map(|name| handle(&mut one, &[name, "f"], &[]));
    assert_eq!(before.open_count(), 2);
    let again = |files: &Arc<MemoryFs>, id| export(id, &[if id == 1 { "a" } else { "b" }], files, access());
    // Nothing has changed for who stays.
    drop(world.server.replace_exports(Exports::new([again(&before, 1), again(&before, 2)]).unwrap()));
    assert_eq!(before.open_count(), 2);
    drop(world.server.replace_exports(Exports::new([again(&after, 1)]).unwrap()));
    assert_eq!(before.open_count(), 0, "nothing keeps the old directory busy");
    let read = |handle: &Filehandle, stateid| {
        [Args::Putfh(op::PutfhArgs { handle: *handle }), Args::Read(op::ReadArgs { stateid, offset: 0, count: 1 })]
    };
    // A handle that the file system of the new directory can't have given.
    let (status, _) = one.run(&read(&old_a, by_a));
    assert!(matches!(status, Status::STALE | Status::BADHANDLE | Status::BAD_STATEID), "{status:?}");
    assert_eq!(one.run(&read(&old_b, by_b)).0, Status::STALE);
    assert_eq!(world.server.status(world.now()).clients[0].opens, 0);
    assert_eq!(one.status(&["a"], &[getattr(&[1])]), Status::OK);
}
