//! The directory of a trail, as users give it.

use std::path::Path;

use vouch_audit::trail::{CHECKPOINT_FILE, KEY_FILE, segments};

use crate::exit::{At as _, Failure, Outcome};

/// A wrong directory must not look like a trail without matches. A new trail has a key only.
pub(super) fn require_trail(directory: &Path) -> Outcome {
    let exists = |name: &str| directory.join(name).symlink_metadata().is_ok();
    if exists(KEY_FILE)
        || exists(CHECKPOINT_FILE)
        || !segments(directory).at(directory.display())?.is_empty()
    {
        return Ok(());
    }
    Err(Failure::not_found(directory.display(), "contains no audit trail")
        .cure("give the directory of --audit"))
}
