//! What the disk has not taken, as it is told by the next start.

use std::sync::atomic::Ordering;

use super::faulty_disk::FaultyDisk;
use super::writer::{go_on, read, record, start, until};
use super::*;

#[test]
fn what_is_lost_is_told_once_also_where_its_count_could_not_be_taken_back_at_first() {
    let directory = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::default();
    let trail = start(directory.path(), &disk, Keeping { ring_len: 1, ..Keeping::default() }, || ());
    disk.full.store(true, Ordering::SeqCst);
    // What is lost before the disk has refused a group is a record of that.
    until("the disk refuses", || {
        trail.record(&record(b"/srv/x", SECOND));
        trail.counts().failures > 0
    });
    let lost = trail.counts().lost;
    until("records are lost", || {
        trail.record(&record(b"/srv/x", SECOND));
        trail.counts().lost > lost
    });
    let failures = trail.counts().failures;
    until("they are counted", || trail.counts().failures > failures + 1);
    disk.forgets.store(true, Ordering::SeqCst);
    disk.full.store(false, Ordering::SeqCst);
    until("the disk takes them again", || trail.is_healthy() && !disk.forgets.load(Ordering::SeqCst));
    trail.stop();
    let lost = trail.counts().lost;
    go_on(directory.path(), &disk, Keeping::default(), || ()).stop();
    assert_eq!(read(directory.path()).1, lost);
}
