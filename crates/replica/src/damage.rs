//! What a replica found unreadable while it served, and whether it still is. Reads no more of a
//! pack than a frame's length or two.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::{fmt, io};

use vouch_tree::BlockHandle;
use vouch_tree_store::Snapshot;

use super::output::Span;
use super::trees::Pack;

/// One thing that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage {
    place: Place,
    what: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// A run of bytes of a pack.
    Pack { path: PathBuf, offset: u64, len: u64 },
    /// A frame that can't be found.
    Frame(BlockHandle),
}

impl Damage {
    pub(super) fn of_pack(place: &Span<Pack>, error: &io::Error) -> Self {
        let path = place.file.0.path().to_owned();
        let what = format!("{}: the pack ends early or can't be read at byte {}: {error}", path.display(), place.offset);
        Self { place: Place::Pack { path, offset: place.offset, len: place.len.min(READ_BACK_LEN_MAX) }, what }
    }

    pub(super) fn of_frame(handle: &BlockHandle, error: &vouch_tree_store::Error) -> Self {
        Self { place: Place::Frame(*handle), what: error.to_string() }
    }

    /// Whether it can be read now, in a database whose packs have their lengths.
    pub(super) fn is_mended(&self, snapshot: &Snapshot) -> bool {
        match &self.place {
            Place::Frame(handle) => snapshot.locate(handle).is_ok(),
            Place::Pack { path, offset, len } => match File::open(path) {
                Ok(file) => file.read_exact_at(&mut vec![0; *len as usize], *offset).is_ok(),
                // A collection has replaced it.
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            },
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// Sending stops where a file can't be read, or within a buffer's length of it.
const READ_BACK_LEN_MAX: u64 = 256 * 1024;
