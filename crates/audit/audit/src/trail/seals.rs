//! The seals of a trail, for logs outside of it.

use std::cell::Cell;
use std::io;
use std::path::Path;

use super::files::read_removed_seals;
use super::prove::each_frame;
use super::{Segment, SegmentFile, read_checkpoint, segments};
use crate::frame::{Header, Kind, MAGIC};
use crate::seal::Seal;

/// The durable seals from `epoch` on, in order; at most `count_max`. Those of removed segments are
/// included. Verifies no signature. Loads each segment that may have some.
pub fn seals_from(directory: &Path, epoch: u64, count_max: usize) -> io::Result<Vec<Seal>> {
    // The writer replaces it when the seal is durable.
    let newest = match read_checkpoint(&directory.join(super::CHECKPOINT_FILE)) {
        Ok(newest) => newest.epoch,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let is_full = Cell::new(false);
    let mut seals: Vec<Seal> = Vec::new();
    let mut push = |seal: Option<Seal>| {
        let next = seals.last().map_or(epoch, |seal| seal.epoch + 1);
        // A segment that is removed meanwhile has its seals in both places.
        seals.extend(seal.filter(|seal| seal.epoch >= next && seal.epoch <= newest));
        is_full.set(seals.len() >= count_max);
        !is_full.get()
    };
    let files = segments(directory)?;
    each_frame(&read_removed_seals(directory)?, 0, |frame| push(Seal::decode(frame.body)));
    let begin = files.iter().rposition(|file| first_epoch(file).is_some_and(|at| at <= epoch));
    for file in &files[begin.unwrap_or(0)..] {
        if is_full.get() {
            break;
        }
        each_frame(&Segment::open_listed(file)?.load()?, MAGIC.len(), |frame| match frame.kind {
            Kind::Checkpoint | Kind::Close => push(Seal::decode(frame.body)),
            Kind::Header | Kind::Record => true,
        });
    }
    Ok(seals)
}

/// Of the segment's first seal.
fn first_epoch(file: &SegmentFile) -> Option<u64> {
    let (_, body) = Segment::open_listed(file).ok()?.frame_at(MAGIC.len() as u64).ok()?;
    Header::decode(&body).map(|header| header.epoch)
}
