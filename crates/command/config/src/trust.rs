//! Root reads only files that no other user can change.

use std::fs::Metadata;
use std::path::Path;

use vouch_trust::{Access, Exposure};

use super::Problem;

/// Only root is protected: other users choose whom they trust.
pub(super) fn check_file(path: &Path, metadata: &Metadata) -> Result<(), Problem> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    vouch_trust::check(path, metadata, Access::Read).map_err(problem)
}

/// Checks a directory whose listing decides which files are read.
pub(super) fn check_directory(path: &Path) -> Result<(), Problem> {
    vouch_trust::check_directory(path).map_err(problem)
}

fn problem(Exposure { place, what, cure, .. }: Exposure) -> Problem {
    Problem { place: place.display().to_string(), what, cure }
}
