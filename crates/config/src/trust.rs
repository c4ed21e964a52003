//! Root reads only files that no other user can change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::Problem;

/// Only root is protected: other users choose whom they trust.
pub(super) fn check_file(path: &Path, metadata: &Metadata) -> Result<(), Problem> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    check_one(path, metadata)?;
    // The real path: a link is as safe as the directories that its target is in.
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real.ancestors().skip(1).try_for_each(check_directory)
}

/// Checks a directory whose listing decides which files are read.
pub(super) fn check_directory(path: &Path) -> Result<(), Problem> {
    match path.metadata() {
        Ok(metadata) if rustix::process::geteuid().is_root() => check_one(path, &metadata),
        _ => Ok(()),
    }
}

fn check_one(path: &Path, metadata: &Metadata) -> Result<(), Problem> {
    let place = path.display();
    let problem = |what: String, cure: String| Err(Problem { place: place.to_string(), what, cure });
    if metadata.uid() != 0 {
        let what = format!("belongs to user {}, who could change what root does", metadata.uid());
        return problem(what, format!("run `chown root {place}`"));
    }
    // In a sticky directory, only root can replace root's files.
    let is_sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
    if metadata.mode() & 0o022 != 0 && !is_sticky {
        let what = format!("is writable by other users (mode {:04o}), who could change what root does", metadata.mode() & 0o7777);
        return problem(what, format!("run `chmod go-w {place}`"));
    }
    Ok(())
}
