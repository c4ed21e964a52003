//! What clients hold ends when they can't give it back any more: under their flavour, from their
//! ports, by who they are; and nobody waits for the file systems that are asked about it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use vouch_nfs4::op::{self, Args, Results};
use vouch_nfs4::{Bytes, ClientId, OwnerSeq, StateOwner, Stateid, Status};
use vouch_nfs4_server::{ClientAccess, Export, Exports, Flavour, FlavourAccess};
use vouch_vfs::{Caller, FileId, FileSystem as _, Name};

use crate::flavours::{proven, takes};
use crate::hosts::{Chosen, HOME, for_chosen};
use crate::world::{Client, MemoryFs, World, access, export, open_args, under};

fn lock(open: Stateid) -> Args<'static> {
    let owner = StateOwner { client: ClientId(0), owner: Bytes(b"locker") };
    Args::Lock(op::LockArgs {
        kind: op::LockType::Write,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: op::Locker::New(op::NewLockOwner { open_seq: OwnerSeq(0), open, lock_seq: OwnerSeq(0), owner }),
    })
}

/// Opens "f" in the export at `path`, and locks it.
fn hold(client: &mut Client<'_>, path: &str) {
    let (status, list) = client.at(&[path], &[open_args("f", None)]);
    let [Results::Open(Ok(ok))] = &list[..] else { panic!("{status:?}: {list:?}") };
    assert_eq!(client.status(&[path, "f"], &[lock(ok.stateid)]), Status::OK);
}

/// How much ends with these exports.
fn replace(world: &World, exports: Vec<Export>) -> usize {
    world.server.replace_exports(Exports::new(exports).unwrap()).ended
}

fn held(world: &World) -> (usize, usize) {
    let totals = world.server.totals(world.now()).0;
    (totals.opens, totals.locks)
}

/// File "f", which anybody may use.
fn make(files: &MemoryFs) -> FileId {
    let set = vouch_vfs::SetAttributes { mode: Some(0o666), ..vouch_vfs::SetAttributes::default() };
    let access = vouch_vfs::OpenAccess { read: true, write: true };
    let name = Name::new(b"f").unwrap();
    files.create(&Caller::root(), &files.root(), name, vouch_vfs::CreateHow::Guarded, &set, access).unwrap().id
}

#[test]
fn what_was_granted_under_a_flavour_ends_when_its_export_does_not_take_that_any_more() {
    let files = Arc::new(MemoryFs::new());
    make(&files);
    let taking = |flavours: &[Flavour]| vec![export(7, &["export"], &files, takes(flavours))];
    let world = World::with(files.clone(), taking(&[Flavour::Sys, Flavour::Krb5p]));
    let (mut one, mut two) = (Client::new(&world, "one", 0), Client::new(&world, "two", 0));
    hold(&mut one, "export");
    (two.flavour, two.principal) = (Flavour::Krb5p, proven("alice@EXAMPLE.ORG"));
    let (status, _) = two.at(&["export"], &[open_args("f", None)]);
    assert_eq!((status, held(&world)), (Status::OK, (2, 1)));
    assert_eq!(replace(&world, taking(&[Flavour::Krb5p, Flavour::Sys])), 0);
    assert_eq!(replace(&world, taking(&[Flavour::Krb5p])), 1);
    assert_eq!((held(&world), files.open_count()), ((1, 0), 1));
    hold(&mut two, "export");
}

#[test]
fn what_was_granted_to_a_port_ends_when_its_export_refuses_that() {
    let files = Arc::new(MemoryFs::new());
    make(&files);
    let insecure = || vec![export(7, &["export"], &files, access())];
    let secure = || {
        let flavours = vec![FlavourAccess { secure_port: true, ..under(Flavour::Sys) }];
        vec![export(7, &["export"], &files, ClientAccess { flavours })]
    };
    for (port, gone, ended) in [(700, false, 0), (700, true, 0), (50_000, false, 1), (50_000, true, 1)] {
        let world = World::with(files.clone(), insecure());
        world.ports.store(port, Ordering::Relaxed);
        let mut client = Client::new(&world, "one", 0);
        hold(&mut client, "export");
        if gone {
            drop(world.server.connection_closed(&client.connection, world.now()));
        }
        assert_eq!(replace(&world, insecure()), 0);
        assert_eq!(replace(&world, secure()), ended, "port {port}, connection gone: {gone}");
        assert_eq!(held(&world), (1 - ended, 1 - ended));
    }
}

#[test]
fn a_file_that_was_met_by_another_export_first_is_hidden_as_well() {
    let files = Arc::new(MemoryFs::new());
    let file = make(&files);
    let other = || export(8, &["other"], &files, access());
    let world = World::with(files.clone(), vec![export(7, &["export"], &files, access()), other()]);
    let (mut first, mut second) = (Client::new(&world, "first", 0), Client::new(&world, "second", 0));
    assert_eq!(first.status(&["other"], &[open_args("f", None)]), Status::OK);
    hold(&mut second, "export");
    let without = Arc::new(files.without(file));
    assert_eq!(replace(&world, vec![export(7, &["export"], &without, access()), other()]), 1);
    assert_eq!(held(&world), (1, 0));
    hold(&mut first, "other");
}

#[test]
fn who_turns_out_to_be_none_of_the_clients_loses_what_it_holds_then() {
    let (files, chosen) = (Arc::new(MemoryFs::new()), Arc::new(Chosen::default()));
    make(&files);
    let world = World::with(files.clone(), vec![export(7, &["export"], &files, access())]);
    let mut client = Client::new(&world, "one", 0);
    hold(&mut client, "export");
    chosen.sought.lock().push(HOME.into());
    assert_eq!(replace(&world, vec![for_chosen(&files, &chosen)]), 0);
    assert_eq!((world.server.clients_changed().ended, held(&world)), (0, (1, 1)));
    // For a while a connection remembers whom an export is for.
    chosen.known.lock().append(&mut chosen.sought.lock());
    let (_, list) = client.at(&["export"], &[Args::Getfh]);
    let [Results::Getfh(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    let handle = ok.handle;
    chosen.known.lock().clear();
    assert_eq!((world.server.clients_changed().ended, held(&world)), (1, (0, 0)));
    let again = [Args::Putfh(op::PutfhArgs { handle }), open_args("f", None)];
    assert_eq!((client.run(&again).0, held(&world)), (Status::STALE, (0, 0)));
}

#[test]
fn calls_go_on_while_a_reload_asks_a_file_system_that_does_not_answer() {
    let (slow, quick) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    let file = make(&slow);
    make(&quick);
    let other = || export(8, &["other"], &quick, access());
    let world = World::with(slow.clone(), vec![export(7, &["export"], &slow, access()), other()]);
    let (mut holder, mut client) = (Client::new(&world, "holder", 0), Client::new(&world, "one", 0));
    hold(&mut holder, "export");
    let (asked, is_asked) = mpsc::channel();
    let (answer, is_answered) = mpsc::channel::<()>();
    let is_answered = parking_lot::Mutex::new(is_answered);
    let answer = Some(answer);
    slow.set_seeking(move |sought| {
        if *sought == file && asked.send(()).is_ok() {
            // Until the other end is dropped.
            let _ = is_answered.lock().recv();
        }
    });
    let without = Arc::new(slow.without(file));
    thread::scope(|scope| {
        let world = &world;
        let reload = scope.spawn(move || replace(world, vec![export(7, &["export"], &without, access()), other()]));
        is_asked.recv_timeout(Duration::from_secs(60)).unwrap();
        let (done, is_done) = mpsc::channel();
        scope.spawn(move || {
            hold(&mut client, "other");
            let _ = done.send(());
        });
        let went_on = is_done.recv_timeout(Duration::from_secs(60));
        drop(answer);
        assert_eq!(reload.join().unwrap(), 1);
        assert!(went_on.is_ok(), "it waited for the reload");
    });
    assert_eq!(held(&world), (1, 1));
}
