//! Compares paths. The walk checks inodes: paths do not show bind mounts.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::error::Error;
use crate::printable::printable;

/// Neither need exist.
pub fn check_outside_source(
    source: &Path,
    one_file_system: bool,
    database: &Path,
    keys: &Path,
) -> Result<(), Error> {
    let holds = |place| holds(source, one_file_system, place);
    let path = |place: &Path| printable(place.as_os_str().as_bytes());
    // A bucket is in no directory; the walk checks its work directory.
    if !vouch_tree_store::is_bucket_address(database) && holds(database) {
        return Err(Error::DatabaseInside { path: path(database) });
    }
    if holds(keys) {
        return Err(Error::Private { path: path(keys), what: "this is the directory of the keys" });
    }
    Ok(())
}

fn holds(source: &Path, one_file_system: bool, place: &Path) -> bool {
    let Ok(source) = fs::metadata(source) else { return false };
    let absolute = std::path::absolute(place).unwrap_or_else(|_| place.to_owned());
    // A missing path is judged by its nearest existing parent.
    let Some(existing) = absolute.ancestors().find_map(|above| above.canonicalize().ok()) else {
        return false;
    };
    let is_source = |above: &Path| {
        fs::metadata(above).is_ok_and(|at| (at.dev(), at.ino()) == (source.dev(), source.ino()))
    };
    let elsewhere =
        one_file_system && fs::metadata(&existing).is_ok_and(|at| at.dev() != source.dev());
    !elsewhere && existing.ancestors().any(is_source)
}
