//! File names of a trail, the key and the checkpoint.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::Disk;
use crate::keys::Ratchet;
use crate::seal::Seal;

/// Default name of the current signing key's file.
pub const KEY_FILE: &str = "key";
/// The latest seal.
pub const CHECKPOINT_FILE: &str = "checkpoint";
pub(crate) const TORN_EXTENSION: &str = "torn";
pub(crate) const REMOVED_SEALS_FILE: &str = "removed.seals";
const OPEN: &str = "trail";
const PACKED: &str = "trail.zst";
const NEW: &str = "new";

/// A segment of a trail on disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentFile {
    /// From 1.
    pub number: u64,
    /// Of the file.
    pub path: PathBuf,
    /// By zstd, in blocks.
    pub is_compressed: bool,
}

impl SegmentFile {
    pub(super) fn open(directory: &Path, number: u64) -> SegmentFile {
        SegmentFile {
            number,
            path: directory.join(format!("{number:012}.{OPEN}")),
            is_compressed: false,
        }
    }

    pub(super) fn compressed(directory: &Path, number: u64) -> SegmentFile {
        SegmentFile {
            number,
            path: directory.join(format!("{number:012}.{PACKED}")),
            is_compressed: true,
        }
    }

    fn of(path: PathBuf) -> Option<SegmentFile> {
        let (number, kind) = path.file_name()?.to_str()?.split_once('.')?;
        let is_compressed = match kind {
            OPEN => false,
            PACKED => true,
            _ => return None,
        };
        let digits = number.len() == 12 && number.bytes().all(|byte| byte.is_ascii_digit());
        Some(SegmentFile { number: number.parse().ok().filter(|_| digits)?, path, is_compressed })
    }
}

/// In order. After an interrupted compression, returns the uncompressed file.
pub fn segments(directory: &Path) -> io::Result<Vec<SegmentFile>> {
    let mut found: Vec<SegmentFile> = fs::read_dir(directory)?
        .filter_map(|entry| entry.map(|entry| SegmentFile::of(entry.path())).transpose())
        .collect::<io::Result<_>>()?;
    found.sort_by_key(|file| (file.number, file.is_compressed));
    found.dedup_by_key(|file| file.number);
    Ok(found)
}

pub(crate) fn read_removed_seals(directory: &Path) -> io::Result<Vec<u8>> {
    match fs::read(directory.join(REMOVED_SEALS_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// Fails if the file is not readable or has no key.
pub fn read_key(path: &Path) -> io::Result<Ratchet> {
    let bytes = Zeroizing::new(fs::read(path)?);
    Ratchet::decode(&bytes).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "not a key of an audit trail, or damaged")
    })
}

/// Verifies the seal's own signature.
pub fn read_checkpoint(path: &Path) -> io::Result<Seal> {
    let bytes = fs::read(path)?;
    let seal = Seal::decode(&bytes).filter(Seal::is_signed);
    seal.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "not a checkpoint of an audit trail, or damaged")
    })
}

/// The file must not exist yet.
pub fn create_key(disk: &dyn Disk, path: &Path, key: &Ratchet) -> io::Result<()> {
    let file = disk.create(path, true)?;
    file.write_at(&key.encode(), 0)?;
    file.sync()?;
    disk.sync_dir(parent(path))
}

/// Overwrites the old bytes before the next key replaces them. Repeatable after an error. Keeps an
/// unreadable `.new` file, perhaps the next key.
pub(super) fn replace_key(disk: &dyn Disk, path: &Path, key: &Ratchet) -> io::Result<()> {
    let (bytes, new) = (key.encode(), &new_path(path));
    let is_written = match fs::read(new).map(Zeroizing::new) {
        Ok(there) => *there == *bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    if is_written {
        // This may be the only copy, and a failed sync may have dropped its bytes.
        let file = disk.open(new)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        disk.sync_dir(parent(new))?;
    } else {
        write_new_file(disk, path, &bytes, true)?;
    }
    match disk.open(path) {
        Ok(old) => {
            old.write_at(&vec![0; bytes.len()], 0)?;
            old.sync()?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    rename_into_place(disk, path)
}

/// Also returns a key that exists only in the `.new` file, for [`replace_key`]. Any other `.new`
/// file is removed, unless the disk is full.
pub(super) fn recover_key(disk: &dyn Disk, path: &Path) -> io::Result<(Ratchet, Option<Ratchet>)> {
    let new = new_path(path);
    match (read_key(path), read_key(&new)) {
        (Ok(key), Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok((key, None)),
        (Ok(key), _) => match disk.remove(&new) {
            Err(error) if !is_full(&error) => Err(error),
            _ => Ok((key, None)),
        },
        (Err(_), Ok(key)) => Ok((key, Some(read_key(&new)?))),
        (Err(error), Err(_)) => Err(error),
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Durable and atomic. Only the owner can read the file.
pub fn replace_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(disk, path, bytes, true)
}

pub(super) fn replace_shared(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(disk, path, bytes, false)
}

fn replace_with(disk: &dyn Disk, path: &Path, bytes: &[u8], secret: bool) -> io::Result<()> {
    write_new_file(disk, path, bytes, secret)?;
    rename_into_place(disk, path)
}

fn write_new_file(disk: &dyn Disk, path: &Path, bytes: &[u8], secret: bool) -> io::Result<()> {
    let new = &new_path(path);
    match disk.remove(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(new, secret)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.sync_dir(parent(new))
}

fn rename_into_place(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    disk.rename(&new_path(path), path)?;
    disk.sync_dir(parent(path))
}

fn new_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(NEW);
    PathBuf::from(name)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
