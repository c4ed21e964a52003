//! A head whose lease has ended sends nothing and writes nothing.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::atomic::AtomicUsize;

use redb::StorageBackend as _;
use vouch_audit::trail::Disk as _;

use super::blocking::{Gate, Slow, compound, lookup, until};
use super::*;
use crate::lease::{GuardedDisk, GuardedFile, LeaseError, ServingRight};
use crate::memory_quota::Quotas;
use crate::transport::connection::{Connection, Side};
use crate::transport::inbox::Inbox;
use crate::transport::output::Outgoing;
use crate::worker::WAKE;

fn connection(right: Arc<ServingRight>) -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (here, peer) = listener.accept().unwrap();
    let poll = mio::Poll::new().unwrap();
    let inbox = Arc::new(Inbox::new(poll.registry(), WAKE).unwrap());
    let shares = Quotas::with_calls_max(1, || ()).of(peer.ip());
    let engine = super::engine().connection_opened(peer);
    (Connection::new(here, Side::Client, engine, inbox, 0, shares, Some(right)), there)
}

#[test]
fn no_reply_leaves_after_the_end() {
    let right = Arc::new(ServingRight::of_a_day());
    let (connection, mut there) = connection(right.clone());
    connection.send([Outgoing::bytes(b"before".to_vec())], |_| {});
    right.end();
    connection.send([Outgoing::bytes(b"after".to_vec())], |_| {});
    assert!(connection.has_failed());
    drop(connection);
    let mut received = Vec::new();
    there.read_to_end(&mut received).unwrap();
    assert_eq!(received, b"before");
}

#[test]
fn no_write_begins_after_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let right = Arc::new(ServingRight::of_a_day());
    let file = GuardedFile::open(&directory.path().join("database"), right.clone()).unwrap();
    let disk = GuardedDisk(right.clone());
    let segment = disk.create(&directory.path().join("segment"), false).unwrap();
    file.write(0, b"before").unwrap();
    segment.write_at(b"before", 0).unwrap();
    right.end();
    assert!(
        file.write(0, b"after").is_err() && file.set_len(1).is_err() && file.sync_data().is_err()
    );
    assert!(
        segment.write_at(b"after", 0).is_err()
            && segment.set_len(1).is_err()
            && segment.sync().is_err()
    );
    assert!(
        disk.create(&directory.path().join("next"), false).is_err()
            && disk.remove(&directory.path().join("segment")).is_err()
    );
    for name in ["database", "segment"] {
        assert_eq!(std::fs::read(directory.path().join(name)).unwrap(), b"before");
    }
}

/// The tenure in the record after an orderly stop of a head. `is_hung`: an operation hangs.
fn tenure_after_stop(is_hung: bool) -> (Result<(), ExportError>, String) {
    let (files, gate) = (MemoryFs::new(), Gate::default());
    let passed = gate.clone();
    files.set_remote();
    files.set_fault(move |_, _| {
        passed.pass();
        None
    });
    let change = |config: &mut ExportConfig| {
        std::fs::DirBuilder::new().mode(0o700).create(&config.state).unwrap();
        let lease = Duration::from_secs(3600);
        config.shared = Some(SharedState {
            head: "a".into(),
            lease,
            fence: Vec::new(),
            is_fence_required: false,
        });
        config.limits.drain_max = Duration::from_millis(if is_hung { 50 } else { 60_000 });
    };
    let mut server = blocking::start(change, &files, &Slow::default(), &Slow::default());
    let mut client = server.connect();
    gate.set_closed(is_hung);
    client
        .write_all(&compound(1, &[vouch_nfs4::op::Args::Putrootfh, lookup("data"), lookup("name")]))
        .unwrap();
    if is_hung {
        until("the operation hangs", || gate.waiting().0 == 1);
    } else {
        read_record(&mut client);
    }
    let ended = server.stop();
    let record = std::fs::read_to_string(server.state.join("lease/epoch-1")).unwrap();
    gate.set_closed(false);
    (ended, record.lines().find_map(|line| line.strip_prefix("tenure ")).unwrap().to_owned())
}

#[test]
fn orderly_stop_releases_the_lease_unless_an_operation_hangs() {
    let (ended, tenure) = tenure_after_stop(false);
    assert_eq!((ended.is_ok(), &*tenure), (true, "released"));
    let (ended, tenure) = tenure_after_stop(true);
    assert!(matches!(ended, Err(ExportError::Lease(LeaseError::Unfinished(1)))), "{ended:?}");
    assert_eq!(tenure, "active");
}

#[test]
fn client_that_never_pauses_does_not_delay_the_stop() {
    let (files, operations) = (MemoryFs::new(), Arc::new(AtomicUsize::new(0)));
    files.set_remote();
    let counted = operations.clone();
    files.set_fault(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(1));
        None
    });
    let change = |config: &mut ExportConfig| config.limits.drain_max = Duration::from_secs(3600);
    let mut server = blocking::start(change, &files, &Slow::default(), &Slow::default());
    let mut client = server.connect();
    let call = compound(1, &[vouch_nfs4::op::Args::Putrootfh, lookup("data"), lookup("name")]);
    let mut call_once = || {
        operations.store(0, Ordering::SeqCst);
        client.write_all(&call).unwrap();
        read_record(&mut client);
        operations.swap(0, Ordering::SeqCst)
    };
    // The first call crosses into the export with more operations.
    let [_, operations_of_call] = [call_once(), call_once()];
    let mut sender = client.try_clone().unwrap();
    let sending = thread::spawn(move || while sender.write_all(&call).is_ok() {});
    let receiving = thread::spawn(move || {
        std::iter::from_fn(|| vouch_testkit::read_record(&mut client).ok()).count()
    });
    until("the server works", || operations.load(Ordering::SeqCst) > 10 * operations_of_call);
    let stopping = thread::spawn(move || server.stop());
    until("the server stops", || stopping.is_finished());
    stopping.join().unwrap().unwrap();
    sending.join().unwrap();
    assert_eq!(
        receiving.join().unwrap() * operations_of_call,
        operations.load(Ordering::SeqCst),
        "each call has its reply"
    );
}
