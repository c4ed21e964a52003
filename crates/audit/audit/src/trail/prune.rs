//! Removes old segments and keeps their seals, so that the rest can still be verified from the
//! first key.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::files::{REMOVED_SEALS_FILE, SegmentFile, segments};
use super::{Disk, Segment};
use crate::frame::{Header, Kind, MAGIC, OVERHEAD, parse};
use crate::seal::{SEAL_LENS, Seal};

/// When segments are removed; by default never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Remove segments older than this, in nanoseconds.
    pub age_ns_max: Option<u64>,
    /// Remove the oldest segments while the trail is longer, in bytes.
    pub len_max: Option<u64>,
    /// Keep segments younger than this, whatever the length, in nanoseconds.
    pub age_ns_min: u64,
}

pub(crate) const PRUNED_PREFIX: &str = "segments are removed up to ";

/// Oldest first; keeps at least two. Removes nothing unless `record_removal` has recorded the last
/// number.
pub(crate) fn prune(
    disk: &dyn Disk,
    directory: &Path,
    retention: &Retention,
    now_ns: u64,
    may_remove: impl Fn(u64) -> bool,
    record_removal: impl FnOnce(u64) -> bool,
) -> io::Result<u64> {
    let removable = removable(directory, retention, now_ns, &may_remove)?;
    let Some((last, _)) = removable.last() else { return Ok(0) };
    if !record_removal(last.number) {
        return Ok(0);
    }
    append_removed_seals(disk, directory, &removable)?;
    let mut removed = 0;
    // The next start removes the others.
    for (file, _) in removable.iter().take_while(|(file, _)| may_remove(file.number)) {
        disk.remove(&file.path)?;
        super::index::remove_index(file);
        // Durable order: no segment disappears before an older one.
        disk.sync_dir(directory)?;
        removed += 1;
    }
    Ok(removed)
}

fn removable(
    directory: &Path,
    retention: &Retention,
    now_ns: u64,
    may_remove: impl Fn(u64) -> bool,
) -> io::Result<Vec<(SegmentFile, Vec<u8>)>> {
    let mut removable = Vec::new();
    if retention.age_ns_max.is_none() && retention.len_max.is_none() {
        return Ok(removable);
    }
    let files = segments(directory)?;
    let lens = files
        .iter()
        .map(|file| fs::metadata(&file.path).map(|metadata| metadata.len()))
        .collect::<io::Result<Vec<_>>>()?;
    let mut len: u64 = lens.iter().sum();
    for (file, file_len) in files.iter().zip(lens).take(files.len().saturating_sub(2)) {
        if !may_remove(file.number) {
            break;
        }
        let bytes = Segment::open(file)?.load()?;
        let mut at = MAGIC.len().min(bytes.len());
        let (mut seals, mut begun_ns, mut is_closed) = (Vec::new(), now_ns, false);
        while let Ok(frame) = parse(&bytes[at..]) {
            match frame.kind {
                Kind::Header => {
                    begun_ns = Header::decode(frame.body).map_or(now_ns, |header| header.time_ns)
                }
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
        // A segment without a closing seal is evidence for `verify`.
        if !is_closed || age < retention.age_ns_min || !(too_old || too_long) {
            break;
        }
        len -= file_len;
        removable.push((file.clone(), seals));
    }
    Ok(removable)
}

fn append_removed_seals(
    disk: &dyn Disk,
    directory: &Path,
    removable: &[(SegmentFile, Vec<u8>)],
) -> io::Result<()> {
    let path = directory.join(REMOVED_SEALS_FILE);
    let known = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        other => Some(other?),
    };
    let len =
        known.as_ref().map_or(Ok(0), |file| file.metadata().map(|metadata| metadata.len()))?;
    let first = removable.first().map_or(u64::MAX, |(file, _)| file.number);
    let mut at = len;
    while let Some(known) = known.as_ref().filter(|_| at > 0) {
        match seal_before(known, at)? {
            Some((seal, _)) if seal.segment < first => break,
            Some((_, start)) => at = start,
            // A crash left a part of a frame.
            None => at -= 1,
        }
    }
    let seals: Vec<u8> = removable.iter().flat_map(|(_, seals)| seals).copied().collect();
    let file = if known.is_some() { disk.open(&path)? } else { disk.create(&path, false)? };
    file.set_len(at)?;
    file.write_at(&seals, at)?;
    file.sync()?;
    disk.sync_dir(directory)
}

/// The seal whose frame ends at `end`, and where its frame starts.
fn seal_before(file: &File, end: u64) -> io::Result<Option<(Seal, u64)>> {
    for seal_len in SEAL_LENS {
        let mut bytes = vec![0; OVERHEAD + seal_len];
        let Some(start) = end.checked_sub(bytes.len() as u64) else { continue };
        file.read_exact_at(&mut bytes, start)?;
        let frame = parse(&bytes).ok().filter(|frame| frame.len() == bytes.len());
        if let Some(seal) = frame.and_then(|frame| Seal::decode(frame.body)) {
            return Ok(Some((seal, start)));
        }
    }
    Ok(None)
}
