//! Reads at most a frame's length of a pack.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use vouch_tree::BlockHandle;
use vouch_tree_store::Snapshot;

use super::output::Span;
use super::trees::ServedFile;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage {
    place: DamagedPart,
    what: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DamagedPart {
    Pack {
        path: PathBuf,
        offset: u64,
        len: u64,
    },
    Frame(BlockHandle),
    /// Another file or change time means a replaced pack; the next pass checks it.
    Rotten {
        path: PathBuf,
        stamp: Option<Stamp>,
    },
}

impl Damage {
    pub(super) fn of_pack(place: &Span<ServedFile>, error: &io::Error) -> Self {
        let path = place.file.0.path().to_owned();
        let what = format!(
            "{}: the pack ends early or can't be read at byte {}: {error}",
            path.display(),
            place.offset
        );
        Self {
            place: DamagedPart::Pack {
                path,
                offset: place.offset,
                len: place.len.min(READ_BACK_LEN_MAX),
            },
            what,
        }
    }

    pub(super) fn of_frame(handle: &BlockHandle, error: &vouch_tree_store::Error) -> Self {
        Self { place: DamagedPart::Frame(*handle), what: error.to_string() }
    }

    pub(super) fn of_scrub(path: &Path, problem: &str) -> Self {
        Self {
            place: DamagedPart::Rotten { path: path.to_owned(), stamp: stamp_of(path) },
            what: format!("{}: {problem}; the bytes have changed on the disk", path.display()),
        }
    }

    pub(super) fn is_of_scrub(&self, path: &Path) -> bool {
        matches!(&self.place, DamagedPart::Rotten { path: rotten, .. } if rotten == path)
    }

    pub(super) fn is_mended(&self, snapshot: &Snapshot) -> bool {
        match &self.place {
            DamagedPart::Rotten { path, stamp } => stamp_of(path) != *stamp,
            DamagedPart::Frame(handle) => snapshot.locate(handle).is_ok(),
            DamagedPart::Pack { path, offset, len } => match File::open(path) {
                Ok(file) => file.read_exact_at(&mut vec![0; *len as usize], *offset).is_ok(),
                // A garbage collection replaced the pack.
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            },
        }
    }
}

/// Inode, length, and change time in seconds and nanoseconds.
type Stamp = (u64, u64, i64, i64);

fn stamp_of(path: &Path) -> Option<Stamp> {
    let found = path.metadata().ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

const READ_BACK_LEN_MAX: u64 = 256 * 1024;
