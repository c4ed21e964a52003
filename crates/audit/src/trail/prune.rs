//! Retention: old segments go, their seals stay, so that what is left can still be verified from
//! the first key on.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::files::{REMOVED, SegmentFile, segments};
use super::{Disk, Segment};
use crate::frame::{Header, Kind, MAGIC, OVERHEAD, parse};
use crate::seal::{SEAL_LEN, Seal};

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

/// How the detail of the record begins that is made before segments are removed; the number of the
/// last of them follows. Without that record in the trail, segments that are missing are a fault.
pub const PRUNED: &str = "segments are removed up to ";

/// Removes what may be, oldest first, up to the first that `may_go` is false of; returns how many
/// segments. The last two are always left. `tell` is given the number of the last that will go,
/// before any does: whether that is on record now, for if it isn't, none goes.
pub fn prune(
    disk: &dyn Disk,
    directory: &Path,
    retention: &Retention,
    now_ns: u64,
    may_go: impl Fn(u64) -> bool,
    tell: impl FnOnce(u64) -> bool,
) -> io::Result<u64> {
    let due = due(directory, retention, now_ns, &may_go)?;
    let Some((last, _)) = due.last() else { return Ok(0) };
    if !tell(last.number) {
        return Ok(0);
    }
    keep_seals(disk, directory, &due)?;
    let mut removed = 0;
    // Those that stay when the trail ends go at the next start.
    for (file, _) in due.iter().take_while(|(file, _)| may_go(file.number)) {
        disk.remove(&file.path)?;
        super::index::remove_index(file);
        // None is gone before one that is older.
        disk.sync_dir(directory)?;
        removed += 1;
    }
    Ok(removed)
}

/// The segments that may be removed, oldest first, with the frames of their seals.
fn due(directory: &Path, retention: &Retention, now_ns: u64, may_go: impl Fn(u64) -> bool) -> io::Result<Vec<(SegmentFile, Vec<u8>)>> {
    let mut due = Vec::new();
    if retention.age_ns_max.is_none() && retention.len_max.is_none() {
        return Ok(due);
    }
    let files = segments(directory)?;
    let lens = files.iter().map(|file| fs::metadata(&file.path).map(|metadata| metadata.len())).collect::<io::Result<Vec<_>>>()?;
    let mut len: u64 = lens.iter().sum();
    for (file, file_len) in files.iter().zip(lens).take(files.len().saturating_sub(2)) {
        if !may_go(file.number) {
            break;
        }
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

/// Appends the seals of segments that are to go, all at once. Reads no more than the end of what is
/// there.
fn keep_seals(disk: &dyn Disk, directory: &Path, due: &[(SegmentFile, Vec<u8>)]) -> io::Result<()> {
    let path = directory.join(REMOVED);
    let known = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        other => Some(other?),
    };
    let len = known.as_ref().map_or(Ok(0), |file| file.metadata().map(|metadata| metadata.len()))?;
    let first = due.first().map_or(u64::MAX, |(file, _)| file.number);
    // Those of segments that were to be removed when the program died are there, whole or not; the
    // segments are as well.
    let mut at = len - len % FRAME_LEN;
    while let Some(known) = known.as_ref().filter(|_| at > 0) {
        let mut frame = [0; FRAME_LEN as usize];
        known.read_exact_at(&mut frame, at - FRAME_LEN)?;
        if parse(&frame).ok().and_then(|frame| Seal::decode(frame.body)).is_some_and(|seal| seal.segment < first) {
            break;
        }
        at -= FRAME_LEN;
    }
    let seals: Vec<u8> = due.iter().flat_map(|(_, seals)| seals).copied().collect();
    let file = if known.is_some() { disk.open(&path)? } else { disk.create(&path, false)? };
    file.set_len(at)?;
    file.write_at(&seals, at)?;
    file.sync()?;
    disk.sync_dir(directory)
}

/// A seal's frame, bytes: all are of one length.
const FRAME_LEN: u64 = (OVERHEAD + SEAL_LEN) as u64;
