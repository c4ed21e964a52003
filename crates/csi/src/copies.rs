//! Copies of volumes that share their blocks: subvolumes of btrfs, reflinks elsewhere.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{ioctl_ficlone, statfs};
use tonic::Status;

use crate::exports::run;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyMethod {
    /// Atomic.
    Subvolume,
    /// Each file at a time of its own.
    Reflink,
}

impl CopyMethod {
    /// Of the file system of `directory`. None: each copy would take its full space.
    pub(crate) fn detect(directory: &Path) -> io::Result<Option<Self>> {
        if statfs(directory)?.f_type == BTRFS_MAGIC {
            return Ok(Some(Self::Subvolume));
        }
        let paths = [".reflink-from", ".reflink-to"].map(|name| directory.join(name));
        let try_clone = || -> io::Result<bool> {
            fs::write(&paths[0], [0; 4096])?;
            let (from, to) = (File::open(&paths[0])?, File::create(&paths[1])?);
            Ok(ioctl_ficlone(&to, &from).is_ok())
        };
        let is_possible = try_clone();
        paths.iter().for_each(|path| drop(fs::remove_file(path)));
        Ok(is_possible?.then_some(Self::Reflink))
    }
}

/// An empty directory of which snapshots can be made.
pub(crate) fn create(method: Option<CopyMethod>, path: &Path) -> Result<(), Status> {
    // A controller that was killed may have made it.
    if path.exists() {
        return Ok(());
    }
    match method {
        Some(CopyMethod::Subvolume) => {
            run("btrfs", &["subvolume".as_ref(), "create".as_ref(), path.as_os_str()], NEEDS_BTRFS)
        }
        _ => DirBuilder::new().mode(0o700).create(path).map_err(|error| at(path, error)),
    }
}

/// `to` appears when the copy is complete. What an interrupted copy has left is removed.
pub(crate) fn copy(
    method: CopyMethod,
    from: &Path,
    to: &Path,
    is_read_only: bool,
) -> Result<(), Status> {
    let partial = to.with_extension(PARTIAL);
    remove(&partial)?;
    remove(to)?;
    let copied = fill(method, from, &partial, is_read_only).and_then(|()| show(&partial, to));
    if copied.is_err() {
        // The next attempt may never come.
        drop(remove(&partial));
    }
    copied
}

fn fill(method: CopyMethod, from: &Path, partial: &Path, is_read_only: bool) -> Result<(), Status> {
    match method {
        CopyMethod::Subvolume => {
            let mut arguments: Vec<&OsStr> = vec!["subvolume".as_ref(), "snapshot".as_ref()];
            arguments.extend(is_read_only.then_some(OsStr::new("-r")));
            arguments.extend([from.as_os_str(), partial.as_os_str()]);
            run("btrfs", &arguments, NEEDS_BTRFS)
        }
        CopyMethod::Reflink => {
            let options = ["--archive", "--reflink=always", "--one-file-system", "-T", "--"];
            let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
            arguments.extend([from.as_os_str(), partial.as_os_str()]);
            run("cp", &arguments, NEEDS_COREUTILS)
        }
    }
}

fn show(partial: &Path, to: &Path) -> Result<(), Status> {
    let parent = to.parent().unwrap_or(Path::new("/"));
    let sync = || rustix::fs::syncfs(File::open(parent)?).map_err(io::Error::from);
    sync().map_err(|error| at(to, error))?;
    fs::rename(partial, to).map_err(|error| at(to, error))?;
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| at(to, error))
}

/// Of a volume or a copy. An interrupted removal continues with the next one.
pub(crate) fn remove(path: &Path) -> Result<(), Status> {
    let removed = path.with_extension(REMOVED);
    remove_renamed(&removed)?;
    match fs::rename(path, &removed) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(at(path, error)),
        Ok(()) => remove_renamed(&removed),
    }
}

fn remove_renamed(removed: &Path) -> Result<(), Status> {
    let Ok(metadata) = fs::symlink_metadata(removed) else { return Ok(()) };
    // The root of a subvolume has this number.
    let is_subvolume = std::os::unix::fs::MetadataExt::ino(&metadata) == 256
        && statfs(removed).is_ok_and(|found| found.f_type == BTRFS_MAGIC);
    if is_subvolume {
        // A controller in a container lacks CAP_SYS_ADMIN for `btrfs subvolume delete`. The owner may
        // empty a subvolume that is not read-only, and Linux 4.18 removes an empty one by rmdir(2).
        let arguments = ["property", "set", "-t", "subvol"].map(OsStr::new);
        let arguments = [&arguments[..], &[removed.as_os_str(), "ro".as_ref(), "false".as_ref()]];
        run("btrfs", &arguments.concat(), NEEDS_BTRFS)?;
    }
    // Pods make directories as deep as they like. remove_dir_all() takes a descriptor for each level, rm(1)
    // does not.
    let options = ["-rf", "--one-file-system", "--"].map(OsStr::new);
    run("rm", &[&options[..], &[removed.as_os_str()]].concat(), NEEDS_COREUTILS)
}

/// What a killed controller has left in `directory`.
pub(crate) fn remove_interrupted(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_left = path.extension().is_some_and(|end| end == PARTIAL || end == REMOVED);
        if is_left && let Err(status) = remove(&path) {
            tracing::warn!("{}", status.message());
        }
    }
    Ok(())
}

fn at(path: &Path, error: io::Error) -> Status {
    Status::internal(format!("{}: {error}", path.display()))
}

/// Volumes and snapshots that are being made, or copied from.
#[derive(Clone, Default)]
pub(crate) struct Pending(Arc<Mutex<BTreeMap<String, usize>>>);

/// Ends with the work, also if the caller gave up waiting.
pub(crate) struct PendingGuard {
    pending: Pending,
    names: Vec<String>,
}

impl Pending {
    /// `names` are made; `source` is read, by any number of copies at once.
    pub(crate) fn begin(&self, made: &str, source: Option<&str>) -> Result<PendingGuard, Status> {
        let mut table = self.0.lock();
        if table.contains_key(made) {
            return Err(busy(made));
        }
        let names: Vec<String> =
            [Some(made), source].into_iter().flatten().map(str::to_owned).collect();
        for name in &names {
            *table.entry(name.clone()).or_default() += 1;
        }
        drop(table);
        Ok(PendingGuard { pending: self.clone(), names })
    }

    pub(crate) fn refuse(&self, name: &str) -> Result<(), Status> {
        if self.0.lock().contains_key(name) { Err(busy(name)) } else { Ok(()) }
    }
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        let mut table = self.pending.0.lock();
        for name in &self.names {
            if let Some(count) = table.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    table.remove(name);
                }
            }
        }
    }
}

/// CSI: an operation that is pending for the volume.
fn busy(name: &str) -> Status {
    Status::aborted(format!("{name}: is being made or copied; try again"))
}

const PARTIAL: &str = "partial";
const REMOVED: &str = "removed";
const BTRFS_MAGIC: rustix::fs::FsWord = 0x9123_683E;
const NEEDS_BTRFS: &str = "the image needs btrfs-progs";
const NEEDS_COREUTILS: &str = "the image needs coreutils";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_copy_leaves_nothing() {
        // A tmpfs has no reflinks.
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("file"), "text").unwrap();
        copy(CopyMethod::Reflink, &from, &to, false).unwrap_err();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn source_is_read_by_many_and_made_by_one() {
        let pending = Pending::default();
        let first = pending.begin("a", Some("s")).unwrap();
        let second = pending.begin("b", Some("s")).unwrap();
        assert_eq!(pending.begin("a", None).err().unwrap().code(), tonic::Code::Aborted);
        drop(first);
        assert!(pending.refuse("s").is_err() && pending.refuse("a").is_ok());
        drop(second);
        assert!(pending.refuse("s").is_ok());
    }
}
