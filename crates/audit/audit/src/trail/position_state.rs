//! The chain tag depends on everything before it, so it shows whether a trail still contains a
//! position.

use std::io;
use std::path::Path;

use super::files::SegmentFile;
use super::{Position, Segment, segments};
use crate::chain::TAG_LEN;
use crate::frame::{Header, MAGIC};

/// The first bytes of the chain value at a position.
pub type ChainTag = [u8; TAG_LEN];

/// What a trail holds at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionState {
    /// The position exists.
    Is(ChainTag),
    /// The segment was removed, and later ones exist.
    Removed,
    /// The trail ends before the position.
    Beyond,
}

/// Reads a few bytes, or one block of a compressed segment.
pub fn position_state(directory: &Path, position: Position) -> io::Result<PositionState> {
    for _ in 1..TRIES_MAX {
        match read_state(directory, position) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    read_state(directory, position)
}

const TRIES_MAX: usize = 3;

fn read_state(directory: &Path, position: Position) -> io::Result<PositionState> {
    let files = segments(directory)?;
    let find = |number: u64| files.iter().find(|file| file.number == number);
    let of = |tag: Option<ChainTag>| tag.map_or(PositionState::Beyond, PositionState::Is);
    let segment_file = find(position.segment);
    if position.offset > MAGIC.len() as u64 {
        if let Some(file) = segment_file {
            return Ok(of(Segment::open(file)?.tag_before(position.offset)?));
        }
    } else {
        if let Some(previous) = segment_file.map(previous).transpose()?.flatten() {
            return Ok(of(previous.first_chunk().copied()));
        }
        if let Some(file) = position.segment.checked_sub(1).and_then(find) {
            let segment = Segment::open(file)?;
            return Ok(of(segment.tag_before(segment.uncompressed_len())?));
        }
    }
    Ok(if files.first().is_some_and(|first| first.number > position.segment) {
        PositionState::Removed
    } else {
        PositionState::Beyond
    })
}

fn previous(file: &SegmentFile) -> io::Result<Option<[u8; 32]>> {
    let segment = Segment::open(file)?;
    Ok(segment
        .frame_at(MAGIC.len() as u64)
        .ok()
        .and_then(|(_, body)| Header::decode(&body))
        .map(|header| header.previous))
}
