//! `--from-snapshot`: the snapshot that a publication reads in place of the live directory.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use vouch_tree_publish::SnapshotSource;

use crate::exit::{At as _, Failure, Outcome};
use crate::when;

/// Where file servers and file systems show the snapshots of a directory.
const SHOWN_IN: [&str; 3] = [".snapshot", ".snap", ".zfs/snapshot"];

const NEW: &str = "new";
/// In the source, while the publication runs.
const MADE: &str = ".vouch-snapshot";

pub(super) struct SourceSnapshot {
    pub(super) path: PathBuf,
    /// For the summary.
    pub(super) name: String,
    pub(super) options: SnapshotSource,
    _made: Option<BtrfsSnapshot>,
}

impl SourceSnapshot {
    /// `from`: `new`, a name below one of [`SHOWN_IN`], or a path.
    pub(super) fn find(source: &Path, from: &str) -> Outcome<Self> {
        let live_device = fs::metadata(source).at(source.display())?.dev();
        if from == NEW {
            return Self::make(source, live_device);
        }
        let path = if from.contains('/') { Some(PathBuf::from(from)) } else { shown(source, from) };
        let Some(path) = path.filter(|path| path.is_dir()) else {
            return Err(Failure::not_found(from, format_args!("no snapshot of {}", source.display()))
                .cure("give the name of a snapshot in .snapshot, .snap or .zfs/snapshot of it, a directory, or new"));
        };
        let options = SnapshotSource { live_device, taken_s: None };
        Ok(SourceSnapshot { path, name: from.to_owned(), options, _made: None })
    }

    fn make(source: &Path, live_device: u64) -> Outcome<Self> {
        // Before the snapshot: a file that is changed meanwhile is read again by the next run.
        let taken = when::now_s();
        let made = BtrfsSnapshot::make(source)?;
        let options = SnapshotSource { live_device, taken_s: i64::try_from(taken).ok() };
        Ok(SourceSnapshot {
            path: made.path.clone(),
            name: format!("made at {}", when::utc(taken)),
            options,
            _made: Some(made),
        })
    }
}

fn shown(source: &Path, name: &str) -> Option<PathBuf> {
    if !matches!(Path::new(name).components().collect::<Vec<_>>()[..], [Component::Normal(_)]) {
        return None;
    }
    SHOWN_IN.iter().map(|place| source.join(place).join(name)).find(|path| path.is_dir())
}

/// Removed at the end.
struct BtrfsSnapshot {
    path: PathBuf,
    /// Of the source: one publication at a time makes a snapshot of it, so an existing one is left
    /// by a killed run.
    _lock: File,
}

impl BtrfsSnapshot {
    fn make(source: &Path) -> Outcome<Self> {
        if !is_subvolume(source) {
            return Err(Failure::input(
                source.display(),
                "not the root of a btrfs subvolume, so no snapshot of it can be made",
            )
            .cure("give the name or the directory of a snapshot to --from-snapshot"));
        }
        let lock = File::open(source).at(source.display())?;
        if lock.try_lock().is_err() {
            let busy = std::io::Error::new(
                std::io::ErrorKind::ResourceBusy,
                "another publication reads a snapshot of it",
            );
            return Err(
                Failure::new(source.display(), busy).cure("publish again when it has ended")
            );
        }
        let path = source.join(MADE);
        if let Ok(left) = path.symlink_metadata() {
            // The program would follow a link to a subvolume elsewhere.
            if !left.is_dir() || !is_subvolume(&path) {
                return Err(Failure::input(
                    path.display(),
                    "no snapshot of an interrupted publication",
                )
                .cure("remove it"));
            }
            btrfs(&["subvolume", "delete"], &[&path])?;
        }
        btrfs(&["subvolume", "snapshot", "-r"], &[source, &path])?;
        Ok(BtrfsSnapshot { path, _lock: lock })
    }
}

impl Drop for BtrfsSnapshot {
    fn drop(&mut self) {
        if let Err(failure) = btrfs(&["subvolume", "delete"], &[&self.path]) {
            tracing::warn!("{failure}; the next publication with --from-snapshot new removes it");
        }
    }
}

fn is_subvolume(source: &Path) -> bool {
    const BTRFS_MAGIC: i64 = 0x9123_683e;
    /// Of the root of each subvolume.
    const ROOT_INODE: u64 = 256;
    let is_btrfs = rustix::fs::statfs(source).is_ok_and(|found| found.f_type == BTRFS_MAGIC);
    is_btrfs && fs::metadata(source).is_ok_and(|found| found.ino() == ROOT_INODE)
}

fn btrfs(command: &[&str], paths: &[&Path]) -> Outcome<()> {
    let output = Command::new("btrfs").args(command).arg("--").args(paths).output().at("btrfs")?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    Err(Failure::new(
        paths[0].display(),
        std::io::Error::other(format!("btrfs {}: {why}", command.join(" "))),
    ))
}
