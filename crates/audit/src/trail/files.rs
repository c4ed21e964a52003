//! Names of files in a trail's directory, and the two small ones: the key and the checkpoint.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::Disk;
use crate::keys::Ratchet;
use crate::seal::Seal;

/// Name of the key's file, unless it is kept elsewhere.
pub const KEY: &str = "key";
/// Name of the file that holds the latest seal.
pub const CHECKPOINT: &str = "checkpoint";
/// What follows a segment's name where bytes that were no frames were cut from its end.
pub const TORN: &str = "torn";
/// Name of the file that keeps the seals of segments that retention has removed.
pub const REMOVED: &str = "removed.seals";
const OPEN: &str = "trail";
const PACKED: &str = "trail.zst";
const NEW: &str = "new";

/// A segment's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentFile {
    /// Number, from 1.
    pub number: u64,
    /// Where it lies.
    pub path: PathBuf,
    /// Whether it is compressed.
    pub packed: bool,
}

impl SegmentFile {
    pub(super) fn open(directory: &Path, number: u64) -> SegmentFile {
        SegmentFile { number, path: directory.join(format!("{number:012}.{OPEN}")), packed: false }
    }

    pub(super) fn packed(directory: &Path, number: u64) -> SegmentFile {
        SegmentFile { number, path: directory.join(format!("{number:012}.{PACKED}")), packed: true }
    }

    fn of(path: PathBuf) -> Option<SegmentFile> {
        let (number, kind) = path.file_name()?.to_str()?.split_once('.')?;
        let packed = match kind {
            OPEN => false,
            PACKED => true,
            _ => return None,
        };
        let digits = number.len() == 12 && number.bytes().all(|byte| byte.is_ascii_digit());
        Some(SegmentFile { number: number.parse().ok().filter(|_| digits)?, path, packed })
    }
}

/// The segments in a directory, in order. Where one is there as it was written and compressed, a
/// compression did not end: the former counts.
pub fn segments(directory: &Path) -> io::Result<Vec<SegmentFile>> {
    let mut found: Vec<SegmentFile> = fs::read_dir(directory)?
        .filter_map(|entry| entry.map(|entry| SegmentFile::of(entry.path())).transpose())
        .collect::<io::Result<_>>()?;
    found.sort_by_key(|file| (file.number, file.packed));
    found.dedup_by_key(|file| file.number);
    Ok(found)
}

/// The frames of seals of segments that are gone.
pub fn segments_removed(directory: &Path) -> io::Result<Vec<u8>> {
    match fs::read(directory.join(REMOVED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// The key in a file.
pub fn read_key(path: &Path) -> io::Result<Ratchet> {
    let bytes = Zeroizing::new(fs::read(path)?);
    Ratchet::decode(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is no key of an audit trail, or it is damaged"))
}

/// The latest seal, as a trail's directory or a copy of its checkpoint has it.
pub fn read_checkpoint(path: &Path) -> io::Result<Seal> {
    let bytes = fs::read(path)?;
    let seal = Seal::decode(&bytes).filter(Seal::is_signed);
    seal.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is no checkpoint of an audit trail, or it is damaged"))
}

/// Makes a trail's key file, which must not exist, and its directory.
pub fn create(disk: &dyn Disk, path: &Path, key: &Ratchet) -> io::Result<()> {
    let file = disk.create(path, true)?;
    file.write_at(&key.encode(), 0)?;
    file.sync()?;
    disk.sync_dir(parent(path))
}

/// Puts the next key in place of one, whose bytes are written over first: file systems that write
/// in place keep none of them. After an error it can be tried again: from before the one is written
/// over until it has its name, the next key lies beside. One there that can't be read may be that
/// one, and is left alone.
pub(super) fn replace_key(disk: &dyn Disk, path: &Path, key: &Ratchet) -> io::Result<()> {
    let (bytes, new) = (key.encode(), &beside(path));
    let is_made = match fs::read(new).map(Zeroizing::new) {
        Ok(there) => *there == *bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    if is_made {
        // It may be all that there is. Its bytes once more: a system that failed to sync them may have
        // forgotten to write them.
        let file = disk.open(new)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        disk.sync_dir(parent(new))?;
    } else {
        make_beside(disk, path, &bytes, true)?;
    }
    match disk.open(path) {
        Ok(old) => {
            old.write_at(&vec![0; bytes.len()], 0)?;
            old.sync()?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    put_in_place(disk, path)
}

/// The key after a crash: the next one may lie beside, or be all that there is. Then it is returned
/// a second time, for [`replace_key`], which puts it in its place; otherwise it goes, unless the
/// disk has no room even for that: [`replace_key`] takes it, or makes it anew.
pub(super) fn settle_key(disk: &dyn Disk, path: &Path) -> io::Result<(Ratchet, Option<Ratchet>)> {
    let new = beside(path);
    match (read_key(path), read_key(&new)) {
        (Ok(key), Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok((key, None)),
        (Ok(key), _) => match disk.remove(&new) {
            Err(error) if !is_full(&error) => Err(error),
            _ => Ok((key, None)),
        },
        // The old one was written over already.
        (Err(_), Ok(key)) => Ok((key, Some(read_key(&new)?))),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Whether the disk has no room, or a quota is used up.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Puts a small file in place of one, durably: a crash leaves the one before or this one. For
/// nobody but its owner.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(disk, path, bytes, true)
}

/// Likewise, for those who may read segments.
pub(super) fn replace_shared(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(disk, path, bytes, false)
}

fn replace_with(disk: &dyn Disk, path: &Path, bytes: &[u8], secret: bool) -> io::Result<()> {
    make_beside(disk, path, bytes, secret)?;
    put_in_place(disk, path)
}

/// Makes what is to take a file's place, durably.
fn make_beside(disk: &dyn Disk, path: &Path, bytes: &[u8], secret: bool) -> io::Result<()> {
    let new = &beside(path);
    match disk.remove(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(new, secret)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.sync_dir(parent(new))
}

fn put_in_place(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    disk.rename(&beside(path), path)?;
    disk.sync_dir(parent(path))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(NEW);
    PathBuf::from(name)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
