//! What is said to be durable is, also where the disk fails (RFC 8881, section 18.32.3).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use vouch_nfs4::op::{self, Args, Results, StableHow};
use vouch_nfs4::{Bytes, Stateid, Status, Verifier};
use vouch_vfs::Error;
use vouch_vfs::memory::Call;

use crate::world::{Client, World};

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

/// The system tells one of two that data is lost; the other has nothing to complain of and comes to its end first.
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
