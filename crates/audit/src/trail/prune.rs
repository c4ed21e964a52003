//! Retention: old segments go, their seals stay, so that what is left can still be verified from the first key on.

use std::fs;
use std::io;
use std::path::Path;

use super::files::{REMOVED, SegmentFile, segments, segments_removed};
use super::{Disk, Segment};
use crate::frame::{Header, Kind, MAGIC, parse};
use crate::seal::Seal;

/// What may be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Segments that began longer ago, nanoseconds.
    pub age_ns_max: Option<u64>,
    /// The oldest, while all together are longer than this, bytes.
    pub len_max: Option<u64>,
    /// But none that began less than this ago, whatever the length, nanoseconds.
    pub age_ns_min: u64,
}

/// How the detail of the record begins that is made before segments are removed; the number of the last of them follows. Without that record in the trail, segments that
/// are missing are a fault.
pub const PRUNED: &str = "segments are removed up to ";

/// Removes what may be, oldest first, up to the first that `may_go` is false of; returns how many segments. The last two are always left. `tell` is given the number of the last that will go, before any does: whether
/// that is on record now, for if it isn't, none goes.
pub fn prune(
    disk: &dyn Disk,
    directory: &Path,
    retention: &Retention,
    now_ns: u64,
    may_go: impl Fn(u64) -> bool,
    tell: impl FnOnce(u64) -> bool,
) -> io::Result<u64> {
    let mut due = due(directory, retention, now_ns)?;
    due.truncate(due.iter().take_while(|(file, _)| may_go(file.number)).count());
    let Some((last, _)) = due.last() else { return Ok(0) };
    if !tell(last.number) {
        return Ok(0);
    }
    for (file, seals) in &due {
        keep_seals(disk, directory, file.number, seals)?;
        disk.remove(&file.path)?;
        super::index::remove_index(file);
        disk.sync_dir(directory)?;
    }
    Ok(due.len() as u64)
}

/// The segments that may be removed, oldest first, with the frames of their seals.
fn due(directory: &Path, retention: &Retention, now_ns: u64) -> io::Result<Vec<(SegmentFile, Vec<u8>)>> {
    let mut due = Vec::new();
    if retention.age_ns_max.is_none() && retention.len_max.is_none() {
        return Ok(due);
    }
    let files = segments(directory)?;
    let lens = files.iter().map(|file| fs::metadata(&file.path).map(|metadata| metadata.len())).collect::<io::Result<Vec<_>>>()?;
    let mut len: u64 = lens.iter().sum();
    for (file, file_len) in files.iter().zip(lens).take(files.len().saturating_sub(2)) {
        let bytes = Segment::open(file)?.load()?;
        let mut at = MAGIC.len().min(bytes.len());
        let (mut seals, mut begun_ns, mut is_closed) = (Vec::new(), now_ns, false);
        while let Ok(frame) = parse(&bytes[at..]) {
            match frame.kind {
                Kind::Header => begun_ns = Header::decode(frame.body).map_or(now_ns, |header| header.time_ns),
                Kind::Checkpoint | Kind::Close => {
                    seals.extend_from_slice(&bytes[at..at + frame.len()]);
                    is_closed = frame.kind == Kind::Close;
                }
                Kind::Record => {}
            }
            at += frame.len();
        }
        let age = now_ns.saturating_sub(begun_ns);
        let too_old = retention.age_ns_max.is_some_and(|max| age > max);
        let too_long = retention.len_max.is_some_and(|max| len > max);
        // What has no end is for `verify` to complain of, not to be tidied away.
        if !is_closed || age < retention.age_ns_min || !(too_old || too_long) {
            break;
        }
        len -= file_len;
        due.push((file.clone(), seals));
    }
    Ok(due)
}

fn keep_seals(disk: &dyn Disk, directory: &Path, segment: u64, seals: &[u8]) -> io::Result<()> {
    let path = directory.join(REMOVED);
    let known = segments_removed(directory)?;
    let mut at = 0;
    let mut last = 0;
    while let Ok(frame) = parse(&known[at..]) {
        last = Seal::decode(frame.body).map_or(last, |seal| seal.segment);
        at += frame.len();
    }
    // Those of a segment that was to be removed when the program died are there, whole or not.
    if last >= segment && at == known.len() {
        return Ok(());
    }
    let file = if known.is_empty() && !path.exists() { disk.create(&path, false)? } else { disk.open(&path)? };
    file.set_len(at as u64)?;
    file.write_at(seals, at as u64)?;
    file.sync()?;
    disk.sync_dir(directory)
}
