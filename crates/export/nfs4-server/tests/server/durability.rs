//! Stable data and metadata are on disk before the reply (RFC 8881 §18.32.3).

use std::sync::atomic::AtomicBool;

use vouch_nfs4::op::StableHow;

use crate::fixture::bad_block;
use crate::prelude::*;

const FILE: &[&str] = &["export", "f"];

fn write(client: &mut Client<'_>, stateid: Stateid, stable: StableHow) -> Result<Verifier, Status> {
    match &client.run_at(FILE, &[write_as(stateid, 0, stable, b"data")]).1[..] {
        [Results::Write(Ok(ok))] => Ok(ok.verifier),
        list => Err(list.last().map_or(Status::SERVERFAULT, Results::status)),
    }
}

fn run_commit(client: &mut Client<'_>) -> Result<Verifier, Status> {
    match &client.run_at(FILE, &[commit()]).1[..] {
        [Results::Commit(Ok(ok))] => Ok(ok.verifier),
        list => Err(list.last().map_or(Status::SERVERFAULT, Results::status)),
    }
}

/// The system reports lost data only to the other call, and this COMMIT ends first.
fn fail_one_call_during_commit(
    failing_call: Call,
    run_failing: impl FnOnce(&mut Client<'_>, Stateid) -> Status + Send,
) {
    let fixture = Fixture::new();
    let [mut writer, mut failing, mut committing] =
        fixture.clients(["writer", "failing", "committing"]);
    let stateid = writer.create("f");
    let stateid_of_failing = failing.create("f");
    let before = write(&mut writer, stateid, StableHow::Unstable).unwrap();
    fixture.files.set_slow_sync(true);
    let (fault_reached, fault_reached_rx) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (fault_reached, released) =
        (std::sync::Mutex::new(fault_reached), std::sync::Mutex::new(released));
    let calls = AtomicUsize::new(0);
    let commit_entered_flag = Arc::new(AtomicBool::new(false));
    let commit_entered = commit_entered_flag.clone();
    fixture.files.set_fault(move |call, _| {
        if call != failing_call && call != Call::Commit {
            return None;
        }
        if call == failing_call && calls.fetch_add(1, Ordering::SeqCst) == 0 {
            fault_reached.lock().unwrap().send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
            return Some(bad_block());
        }
        commit_entered.store(true, Ordering::SeqCst);
        None
    });
    let failing = &mut failing;
    thread::scope(|scope| {
        let failed = scope.spawn(move || run_failing(failing, stateid_of_failing));
        fault_reached_rx.recv_timeout(Duration::from_secs(60)).unwrap();
        let (done, result) = mpsc::channel();
        scope.spawn(move || done.send(run_commit(&mut committing)).unwrap());
        while !commit_entered_flag.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let early_reply = result.recv_timeout(Duration::from_millis(300)).ok();
        release.send(()).unwrap();
        let after = early_reply
            .unwrap_or_else(|| result.recv_timeout(Duration::from_secs(60)).unwrap())
            .unwrap();
        assert_eq!(failed.join().unwrap(), Status::IO);
        assert_ne!(after, before, "clients resend unstable data");
    });
    fixture.files.clear_fault();
    let next = write(&mut writer, stateid, StableHow::Unstable).unwrap();
    assert_eq!(run_commit(&mut writer), Ok(next));
}

#[test]
fn commit_reports_data_lost_by_concurrent_call() {
    fail_one_call_during_commit(Call::Commit, |client, _| run_commit(client).unwrap_err());
    fail_one_call_during_commit(Call::Write, |client, stateid| {
        write(client, stateid, StableHow::FileSync).unwrap_err()
    });
}

#[test]
fn concurrent_commits_of_one_file_all_finish() {
    let fixture = Fixture::new();
    let mut clients: Vec<Client<'_>> =
        (0..6).map(|number| Client::new(&fixture, &format!("{number}"), 0)).collect();
    let stateid = clients[0].create("f");
    let verifier = write(&mut clients[0], stateid, StableHow::Unstable).unwrap();
    fixture.files.set_slow_sync(true);
    thread::scope(|scope| {
        for client in &mut clients {
            scope
                .spawn(move || (0..200).for_each(|_| assert_eq!(run_commit(client), Ok(verifier))));
        }
    });
}

fn begin_mkdirs<'w>(clients: &mut [Client<'w>]) -> Vec<Compound> {
    let attrs = mode(0o755);
    let make = |(number, client): (usize, &mut Client<'w>)| {
        let name = format!("d{number}");
        let mut call = client.begin(&[mkdir(&name, &attrs)]);
        assert!(client.fixture.blocks(&mut call));
        assert_eq!(call.waits_for_sync(), Some(ExportId(7)));
        call
    };
    clients.iter_mut().enumerate().map(make).collect()
}

#[test]
fn failed_shared_sync_fails_every_call_of_the_batch() {
    let fixture = Fixture::new();
    let mut clients: Vec<Client<'_>> =
        (0..5).map(|number| Client::new(&fixture, &format!("{number}"), 0)).collect();
    let before = current_verifier(&fixture, "before");
    fixture.files.set_slow_sync(true);
    let mut calls = begin_mkdirs(&mut clients);
    let synced = Arc::new(AtomicUsize::new(0));
    let counted = synced.clone();
    fixture.files.set_fault(move |call, _| {
        (call == Call::SyncMetadata).then(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            bad_block()
        })
    });
    Compound::sync_batch(&fixture.server, &mut calls);
    assert_eq!(synced.load(Ordering::SeqCst), 1, "one sync for all calls");
    for call in &mut calls {
        assert_eq!(fixture.run_to_status(call, Blocking::Allowed), Status::IO);
    }
    assert_eq!(synced.load(Ordering::SeqCst), 6, "one more sync for each call");
    fixture.files.clear_fault();
    assert_ne!(current_verifier(&fixture, "after"), before, "clients resend unstable data");
}

#[test]
fn each_call_syncs_itself_after_shared_sync_failed() {
    let fixture = Fixture::new();
    let mut clients: Vec<Client<'_>> =
        (0..5).map(|number| Client::new(&fixture, &format!("{number}"), 0)).collect();
    fixture.files.set_slow_sync(true);
    let mut calls = begin_mkdirs(&mut clients);
    let synced = Arc::new(AtomicUsize::new(0));
    let counted = synced.clone();
    let third = Arc::new(AtomicUsize::new(usize::MAX));
    let failing_sync = third.clone();
    fixture.files.set_fault(move |call, _| {
        let at = if call == Call::SyncMetadata {
            counted.fetch_add(1, Ordering::SeqCst)
        } else {
            return None;
        };
        (at == 0 || at == failing_sync.load(Ordering::SeqCst)).then(bad_block)
    });
    Compound::sync_batch(&fixture.server, &mut calls);
    assert_eq!(synced.load(Ordering::SeqCst), 1);
    for (number, call) in calls.iter_mut().enumerate() {
        let before = synced.load(Ordering::SeqCst);
        if number == 2 {
            third.store(before, Ordering::SeqCst);
        }
        assert_eq!(
            fixture.run_to_status(call, Blocking::Allowed),
            if number == 2 { Status::IO } else { Status::OK }
        );
        assert!(synced.load(Ordering::SeqCst) > before, "synced before the reply");
    }
}

#[test]
fn disk_failure_fails_all_concurrent_commits_and_stable_writes() {
    let fixture = Fixture::new();
    let mut clients: Vec<Client<'_>> =
        (0..6).map(|number| Client::new(&fixture, &format!("{number}"), 0)).collect();
    let stateids: Vec<Stateid> = clients.iter_mut().map(|client| client.create("f")).collect();
    let before = write(&mut clients[0], stateids[0], StableHow::Unstable).unwrap();
    fixture.files.set_slow_sync(true);
    fixture
        .files
        .set_fault(|call, _| (call == Call::Commit || call == Call::Write).then(bad_block));
    thread::scope(|scope| {
        for (number, (client, stateid)) in clients.iter_mut().zip(&stateids).enumerate() {
            scope.spawn(move || {
                for _ in 0..50 {
                    let result = if number % 2 == 0 {
                        run_commit(client)
                    } else {
                        write(client, *stateid, StableHow::FileSync)
                    };
                    assert_eq!(result, Err(Status::IO));
                }
            });
        }
    });
    fixture.files.clear_fault();
    assert_ne!(run_commit(&mut clients[0]).unwrap(), before);
}

fn current_verifier(fixture: &Fixture, name: &str) -> Verifier {
    let mut client = Client::new(fixture, name, 0);
    client.create("f");
    run_commit(&mut client).unwrap()
}
