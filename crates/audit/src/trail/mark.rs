//! Whether a trail still is the one that was read: the chain's tag at a place stands for all that
//! came before it.

use std::io;
use std::path::Path;

use super::files::SegmentFile;
use super::{Place, Segment, segments};
use crate::chain::TAG_LEN;
use crate::frame::{Header, MAGIC};

/// The first bytes of the chain's value at a place.
pub type Tag = [u8; TAG_LEN];

/// What a trail has at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The chain, with this tag.
    Is(Tag),
    /// Nothing any more: the segment was removed, and there are later ones.
    Removed,
    /// Nothing: the trail ends before.
    Beyond,
}

/// What a trail has at a place. Reads some bytes; of a compressed segment a block.
pub fn mark(directory: &Path, place: Place) -> io::Result<Mark> {
    for _ in 1..TRIES_MAX {
        match look(directory, place) {
            // Compressed or removed since the look.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    look(directory, place)
}

/// A segment is compressed once, and removed once.
const TRIES_MAX: usize = 3;

fn look(directory: &Path, place: Place) -> io::Result<Mark> {
    let files = segments(directory)?;
    let find = |number: u64| files.iter().find(|file| file.number == number);
    let of = |tag: Option<Tag>| tag.map_or(Mark::Beyond, Mark::Is);
    let here = find(place.segment);
    if place.offset > MAGIC.len() as u64 {
        if let Some(file) = here {
            return Ok(of(Segment::open(file)?.tag_before(place.offset)?));
        }
    } else {
        // Where a segment begins, the chain is what the header says; before there is one, what the segment
        // before ended with.
        if let Some(previous) = here.map(previous).transpose()?.flatten() {
            return Ok(of(previous.first_chunk().copied()));
        }
        if let Some(file) = place.segment.checked_sub(1).and_then(find) {
            let segment = Segment::open(file)?;
            return Ok(of(segment.tag_before(segment.plain_len())?));
        }
    }
    Ok(if files.first().is_some_and(|first| first.number > place.segment) { Mark::Removed } else { Mark::Beyond })
}

/// The chain's value before a segment, if its header is there.
fn previous(file: &SegmentFile) -> io::Result<Option<[u8; 32]>> {
    let segment = Segment::open(file)?;
    Ok(segment.frame_at(MAGIC.len() as u64).ok().and_then(|(_, body)| Header::decode(&body)).map(|header| header.previous))
}
