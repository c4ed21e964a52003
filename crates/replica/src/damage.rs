//! Damage found while serving, and whether it persists. Reads at most a frame's length of a pack.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::{fmt, io};

use vouch_tree::BlockHandle;
use vouch_tree_store::Snapshot;

use super::output::Span;
use super::trees::Pack;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage {
    place: Place,
    what: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Pack { path: PathBuf, offset: u64, len: u64 },
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

    /// Whether the data is readable now, in a database with correct pack lengths.
    pub(super) fn is_mended(&self, snapshot: &Snapshot) -> bool {
        match &self.place {
            Place::Frame(handle) => snapshot.locate(handle).is_ok(),
            Place::Pack { path, offset, len } => match File::open(path) {
                Ok(file) => file.read_exact_at(&mut vec![0; *len as usize], *offset).is_ok(),
                // A garbage collection replaced the pack.
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

/// Sending fails at the unreadable byte or up to a buffer's length before it.
const READ_BACK_LEN_MAX: u64 = 256 * 1024;
