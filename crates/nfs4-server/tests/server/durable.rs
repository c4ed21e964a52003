//! What is said to be durable is, also where the disk fails (RFC 8881, section 18.32.3).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use vouch_nfs4::op::{self, Args, Results, StableHow};
use vouch_nfs4::{Bytes, Name, Stateid, Status, Verifier};
use vouch_nfs4_server::{Compound, ExportId, Progress};
use vouch_vfs::memory::Call;
use vouch_vfs::{Error, Patience};

use crate::world::{Client, World, compound, lookup, mode, results};

const FILE: &[&str] = &["export", "f"];

fn write(client: &mut Client<'_>, stateid: Stateid, stable: StableHow) -> Result<Verifier, Status> {
    match &client.at(FILE, &[Args::Write(op::WriteArgs { stateid, offset: 0, stable, data: Bytes(b"data") })]).1[..] {
        [Results::Write(Ok(ok))] => Ok(ok.verifier),
        list => Err(list.last().map_or(Status::SERVERFAULT, Results::status)),
    }
}

fn commit(client: &mut Client<'_>) -> Result<Verifier, Status> {
    match &client.at(FILE, &[Args::Commit(op::CommitArgs { offset: 0, count: 0 })]).1[..] {
        [Results::Commit(Ok(ok))] => Ok(ok.verifier),
        list => Err(list.last().map_or(Status::SERVERFAULT, Results::status)),
    }
}

/// The system tells one of two that data is lost; the other has nothing to complain of and comes to
/// its end first.
fn one_fails_while_another_commits(fails: Call, fail: impl FnOnce(&mut Client<'_>, Stateid) -> Status + Send) {
    let world = World::new();
    let (mut writer, mut failing, mut committing) =
        (Client::new(&world, "writer", 0), Client::new(&world, "failing", 0), Client::new(&world, "committing", 0));
    let stateid = writer.create("f");
    let stateid_of_failing = failing.create("f");
    let before = write(&mut writer, stateid, StableHow::Unstable).unwrap();
    world.files.set_slow_sync(true);
    let (began, begun) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let (began, wait) = (std::sync::Mutex::new(began), std::sync::Mutex::new(wait));
    let calls = AtomicUsize::new(0);
    let entered = Arc::new(AtomicBool::new(false));
    let seen = entered.clone();
    world.files.set_fault(move |call, _| {
        if call != fails && call != Call::Commit {
            return None;
        }
        if call == fails && calls.fetch_add(1, Ordering::SeqCst) == 0 {
            began.lock().unwrap().send(()).unwrap();
            wait.lock().unwrap().recv().unwrap();
            return Some(Error::Io(std::io::Error::other("a bad block")));
        }
        seen.store(true, Ordering::SeqCst);
        None
    });
    let failing = &mut failing;
    thread::scope(|scope| {
        let failed = scope.spawn(move || fail(failing, stateid_of_failing));
        begun.recv_timeout(Duration::from_secs(60)).unwrap();
        let (done, result) = mpsc::channel();
        scope.spawn(move || done.send(commit(&mut committing)).unwrap());
        while !entered.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        // Whoever does not look round answers now.
        let early = result.recv_timeout(Duration::from_millis(300)).ok();
        go.send(()).unwrap();
        let after = early.unwrap_or_else(|| result.recv_timeout(Duration::from_secs(60)).unwrap()).unwrap();
        assert_eq!(failed.join().unwrap(), Status::IO);
        assert_ne!(after, before, "what was written before is to be sent again");
    });
    // And no more than once.
    world.files.clear_fault();
    let next = write(&mut writer, stateid, StableHow::Unstable).unwrap();
    assert_eq!(commit(&mut writer), Ok(next));
}

#[test]
fn a_commit_beside_one_that_fails_does_not_hide_what_was_lost() {
    one_fails_while_another_commits(Call::Commit, |client, _| commit(client).unwrap_err());
}

#[test]
fn a_commit_beside_a_stable_write_that_fails_does_not_hide_what_was_lost() {
    one_fails_while_another_commits(Call::Write, |client, stateid| write(client, stateid, StableHow::FileSync).unwrap_err());
}

#[test]
fn commits_of_one_file_at_once_all_come_to_an_end() {
    let world = World::new();
    let mut clients: Vec<Client<'_>> = (0..6).map(|number| Client::new(&world, &format!("{number}"), 0)).collect();
    let stateid = clients[0].create("f");
    let verifier = write(&mut clients[0], stateid, StableHow::Unstable).unwrap();
    world.files.set_slow_sync(true);
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(move || (0..200).for_each(|_| assert_eq!(commit(client), Ok(verifier))));
        }
    });
}

/// Calls that make a directory each, begun and waiting for the disk.
fn waiting<'w>(clients: &mut [Client<'w>]) -> Vec<Compound> {
    let attrs = mode(0o755);
    let make = |(number, client): (usize, &mut Client<'w>)| {
        let name = format!("d{number}");
        let kind = op::CreateType::Plain(vouch_nfs4::attr::FileType::Directory);
        let create = Args::Create(op::CreateArgs { kind, name: Name(name.as_bytes()), attrs: attrs.fattr() });
        let ops = [client.sequence(true), Args::Putrootfh, lookup("export"), create];
        let mut call = client.world.begin(client.flavour, &client.connection, &client.principal, compound(2, &ops));
        assert!(matches!(call.run(&client.world.server, Patience::None), Progress::Blocked));
        assert_eq!(call.waits_for_sync(), Some(ExportId(7)));
        call
    };
    clients.iter_mut().enumerate().map(make).collect()
}

fn answer(world: &World, call: &mut Compound) -> Status {
    match call.run(&world.server, Patience::Any) {
        Progress::Done(Some(reply)) => results(reply.bytes[28..].to_vec()).0,
        _ => panic!("it is not done"),
    }
}

// RFC 8881, section 18.32.3 and others: what was changed is on the disk before anybody is told of
// it. One call of the file system serves many; its failure is everybody's.
#[test]
fn where_what_was_gathered_can_not_be_made_durable_every_member_is_told() {
    let world = World::new();
    let mut clients: Vec<Client<'_>> = (0..5).map(|number| Client::new(&world, &format!("{number}"), 0)).collect();
    let before = commit_of_new(&world, "before");
    world.files.set_slow_sync(true);
    let mut calls = waiting(&mut clients);
    let synced = Arc::new(AtomicUsize::new(0));
    let counted = synced.clone();
    world.files.set_fault(move |call, _| {
        (call == Call::SyncMetadata).then(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            Error::Io(std::io::Error::other("a bad block"))
        })
    });
    Compound::sync_together(&world.server, &mut calls);
    assert_eq!(synced.load(Ordering::SeqCst), 1, "one call is made for all");
    for call in &mut calls {
        assert_eq!(answer(&world, call), Status::IO);
    }
    assert_eq!(synced.load(Ordering::SeqCst), 6, "and one more for each, none of which is taken for done");
    world.files.clear_fault();
    assert_ne!(commit_of_new(&world, "after"), before, "who wrote before sends again what he wrote");
}

// Where only the call for all fails (the journal is full), each does it by itself before it is
// answered.
#[test]
fn where_the_call_for_all_fails_each_makes_its_own_durable() {
    let world = World::new();
    let mut clients: Vec<Client<'_>> = (0..5).map(|number| Client::new(&world, &format!("{number}"), 0)).collect();
    world.files.set_slow_sync(true);
    let mut calls = waiting(&mut clients);
    let synced = Arc::new(AtomicUsize::new(0));
    let counted = synced.clone();
    // Of those of the third the disk is bad all the same.
    let third = Arc::new(AtomicUsize::new(usize::MAX));
    let bad = third.clone();
    world.files.set_fault(move |call, _| {
        let at = if call == Call::SyncMetadata { counted.fetch_add(1, Ordering::SeqCst) } else { return None };
        (at == 0 || at == bad.load(Ordering::SeqCst)).then(|| Error::Io(std::io::Error::other("a bad block")))
    });
    Compound::sync_together(&world.server, &mut calls);
    assert_eq!(synced.load(Ordering::SeqCst), 1);
    for (number, call) in calls.iter_mut().enumerate() {
        let before = synced.load(Ordering::SeqCst);
        if number == 2 {
            third.store(before, Ordering::SeqCst);
        }
        assert_eq!(answer(&world, call), if number == 2 { Status::IO } else { Status::OK });
        assert!(synced.load(Ordering::SeqCst) > before, "it was made durable first");
    }
}

// Many COMMITs and stable WRITEs at once, all of which fail: each is told so.
#[test]
fn where_the_disk_fails_every_commit_and_stable_write_at_once_is_told() {
    let world = World::new();
    let mut clients: Vec<Client<'_>> = (0..6).map(|number| Client::new(&world, &format!("{number}"), 0)).collect();
    let stateids: Vec<Stateid> = clients.iter_mut().map(|client| client.create("f")).collect();
    let before = write(&mut clients[0], stateids[0], StableHow::Unstable).unwrap();
    world.files.set_slow_sync(true);
    // Stable writes reach the disk as all writes do in memory; both fail there.
    world.files.set_fault(|call, _| (call == Call::Commit || call == Call::Write).then(|| Error::Io(std::io::Error::other("a bad block"))));
    thread::scope(|scope| {
        for (number, (client, stateid)) in clients.iter_mut().zip(&stateids).enumerate() {
            scope.spawn(move || {
                for _ in 0..50 {
                    let told = if number % 2 == 0 { commit(client) } else { write(client, *stateid, StableHow::FileSync) };
                    assert_eq!(told, Err(Status::IO));
                }
            });
        }
    });
    world.files.clear_fault();
    assert_ne!(commit(&mut clients[0]).unwrap(), before);
}

/// The verifier of the moment, by a COMMIT of a file of its own.
fn commit_of_new(world: &World, name: &str) -> Verifier {
    let mut client = Client::new(world, name, 0);
    client.create("f");
    commit(&mut client).unwrap()
}
