use std::sync::atomic::Ordering;

use super::faulty_disk::FaultyDisk;
use super::writer::{read, record, reopen, start, wait_for};
use super::*;

#[test]
fn loss_is_reported_once_although_clearing_its_count_failed() {
    let directory = new_directory();
    let disk = FaultyDisk::default();
    let trail = start(
        directory.path(),
        &disk,
        WriterOptions { ring_len: 1, ..WriterOptions::default() },
        || (),
    );
    disk.full.store(true, Ordering::SeqCst);
    wait_for("a failed write", || {
        trail.record(&record(b"/srv/x", SECOND));
        trail.counts().failures > 0
    });
    let lost = trail.counts().lost;
    wait_for("lost records", || {
        trail.record(&record(b"/srv/x", SECOND));
        trail.counts().lost > lost
    });
    let failures = trail.counts().failures;
    wait_for("a stored loss", || trail.counts().failures > failures + 1);
    disk.refuses_lost_count.store(true, Ordering::SeqCst);
    disk.full.store(false, Ordering::SeqCst);
    wait_for("a successful write", || {
        trail.is_healthy() && !disk.refuses_lost_count.load(Ordering::SeqCst)
    });
    trail.stop();
    let lost = trail.counts().lost;
    reopen(directory.path(), &disk, WriterOptions::default(), || ()).stop();
    assert_eq!(read(directory.path()).1, lost);
}
