//! What is done apart from a compound's walk: waiting for the disk together with others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vouch_nfs4::Name;
use vouch_nfs4::Status;
use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{Args, CreateArgs, CreateType, RenameArgs};
use vouch_nfs4_server::{Compound, Effect, Export, ExportId, Flavour, Progress};
use vouch_vfs::memory::Call;
use vouch_vfs::{Error, Patience};

use crate::world::{Client, MemoryFs, World, access, compound, export, lookup, mode, open_args, results, user};

/// A call that makes a file, as far as it gets without waiting.
fn making(client: &mut Client<'_>, name: &str) -> Compound {
    let mode = mode(0o644);
    let ops = [client.sequence(false), Args::Putrootfh, crate::world::lookup("export"), open_args(name, Some(&mode))];
    let mut call = client.world.begin(Flavour::Sys, &client.connection, &client.principal, compound(2, &ops));
    assert!(matches!(call.run(&client.world.server, Patience::None), Progress::Blocked));
    call
}

fn status(world: &World, call: &mut Compound, patience: Patience) -> Status {
    match call.run(&world.server, patience) {
        Progress::Done(Some(reply)) => results(reply.bytes[28..].to_vec()).0,
        _ => panic!("neither done nor answered"),
    }
}

#[test]
fn whoever_makes_or_renames_in_a_cold_directory_waits_apart() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    let mode = mode(0o755);
    let made = |name: &'static str| {
        let kind = CreateType::Plain(FileType::Directory);
        [Args::Create(CreateArgs { kind, name: Name(name.as_bytes()), attrs: mode.fattr() }), Args::Getfh]
    };
    let renamed = |old: &'static str, new: &'static str| {
        [Args::Savefh, Args::Rename(RenameArgs { old: Name(old.as_bytes()), new: Name(new.as_bytes()) })]
    };
    // The last look-up has brought the directory into memory again.
    let steps = [(false, made("a")), (false, renamed("a", "c")), (true, made("b")), (true, renamed("b", "d")), (false, made("e"))];
    for (is_cold, [first, second]) in steps {
        if is_cold {
            world.files.chill();
        }
        let ops = [client.sequence(false), Args::Putrootfh, crate::world::lookup("export"), first, second];
        let mut call = world.begin(Flavour::Sys, &client.connection, &client.principal, compound(2, &ops));
        if is_cold {
            assert!(matches!(call.run(&world.server, Patience::None), Progress::Blocked), "{:?}", ops[3].op());
            assert_eq!(status(&world, &mut call, Patience::Any), Status::OK);
        } else {
            assert_eq!(status(&world, &mut call, Patience::None), Status::OK, "{:?}", ops[3].op());
        }
    }
}

#[test]
fn calls_that_wait_for_one_file_system_wait_together() {
    let world = World::new();
    let (mut one, mut two) = (Client::new(&world, "one", 0), Client::new(&world, "two", 0));
    world.files.set_slow_sync(true);
    let mut calls = [making(&mut one, "a"), making(&mut two, "b")];
    assert!(calls.iter_mut().all(|call| call.waits_for_sync() == Some(ExportId(7))));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    world.files.set_fault(move |call, _| {
        count.fetch_add(usize::from(call == Call::SyncMetadata), Ordering::Relaxed);
        None
    });
    Compound::sync_together(&world.server, &mut calls);
    assert_eq!(asked.load(Ordering::Relaxed), 4, "two files and twice their directory");
    for call in &mut calls {
        assert_eq!(call.waits_for_sync(), None);
        assert_eq!(status(&world, call, Patience::None), Status::OK);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4, "nobody asks again");
}

#[test]
fn when_waiting_together_fails_each_learns_it_by_itself() {
    let world = World::new();
    let (mut one, mut two) = (Client::new(&world, "one", 0), Client::new(&world, "two", 0));
    world.files.set_slow_sync(true);
    let mut calls = [making(&mut one, "a"), making(&mut two, "b")];
    let asked = AtomicUsize::new(0);
    // The first fails, and with it the whole; then the first call's own. What is asked later succeeds.
    world.files.set_fault(move |call, _| {
        let fails = call == Call::SyncMetadata && asked.fetch_add(1, Ordering::Relaxed) < 2;
        fails.then(|| Error::Io(std::io::Error::other("a bad block")))
    });
    Compound::sync_together(&world.server, &mut calls);
    let [first, second] = &mut calls;
    assert_eq!(status(&world, first, Patience::Any), Status::IO);
    assert_eq!(status(&world, second, Patience::Any), Status::OK);
}

#[test]
fn an_async_export_waits_for_no_names() {
    let files = Arc::new(MemoryFs::new());
    let world = World::with(files.clone(), vec![Export { sync: false, ..export(7, &["export"], &files, access()) }]);
    let mut client = Client::new(&world, "one", 0);
    files.set_slow_sync(true);
    files.set_fault(|call, _| (call == Call::SyncMetadata).then(|| Error::Io(std::io::Error::other("nobody shall ask"))));
    let mode = mode(0o644);
    let ops = [client.sequence(false), Args::Putrootfh, crate::world::lookup("export"), open_args("a", Some(&mode))];
    let mut call = world.begin(Flavour::Sys, &client.connection, &client.principal, compound(2, &ops));
    assert_eq!(status(&world, &mut call, Patience::None), Status::OK);
}

// RFC 7530, section 3.1.1: a client that calls again has no other connection, and waits for the
// answer or for the connection's end.
#[test]
fn a_call_that_comes_again_while_it_is_done_ends_its_connection() {
    let world = World::new();
    let connection = world.connect();
    let mode = mode(0o755);
    let kind = CreateType::Plain(FileType::Directory);
    let make = Args::Create(CreateArgs { kind, name: Name(b"d"), attrs: mode.fattr() });
    let ops = [Args::Putrootfh, lookup("export"), make];
    let call = || world.begin(Flavour::Sys, &connection, &user(0), compound(0, &ops));
    world.files.set_slow_sync(true);
    let mut first = call();
    assert!(matches!(first.run(&world.server, Patience::None), Progress::Blocked));
    let mut again = call();
    assert!(matches!(again.run(&world.server, Patience::None), Progress::Done(None)));
    assert!(matches!(again.take_effects()[..], [Effect::Disconnect(id)] if id == connection.id()));
    assert_eq!(status(&world, &mut first, Patience::Any), Status::OK);
    // Once more, and it has its answer: without, it would be told that the directory is there.
    assert_eq!(status(&world, &mut call(), Patience::None), Status::OK);
}

#[test]
fn what_waited_is_done_when_it_goes_on() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    world.files.set_slow_sync(true);
    let mut call = making(&mut client, "a");
    world.now_ms.store(9_000, Ordering::Relaxed);
    call.resume_at(world.now());
    // A clock that was read before changes nothing.
    call.resume_at(vouch_nfs4_server::testing::at(2_000));
    assert_eq!(status(&world, &mut call, Patience::Any), Status::OK);
    assert_eq!(world.server.status(world.now()).clients[0].silent_ms, 0);
}
