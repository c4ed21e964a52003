//! A head whose lease has ended sends nothing and writes nothing.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use redb::StorageBackend as _;
use vouch_audit::trail::Disk as _;

use crate::lease::{GuardedDisk, GuardedFile, ServingRight};
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
    assert!(file.write(0, b"after").is_err() && file.set_len(1).is_err() && file.sync_data().is_err());
    assert!(segment.write_at(b"after", 0).is_err() && segment.set_len(1).is_err() && segment.sync().is_err());
    assert!(disk.create(&directory.path().join("next"), false).is_err() && disk.remove(&directory.path().join("segment")).is_err());
    for name in ["database", "segment"] {
        assert_eq!(std::fs::read(directory.path().join(name)).unwrap(), b"before");
    }
}
