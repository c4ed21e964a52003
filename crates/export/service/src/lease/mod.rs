//! The lease of a shared state directory: which head may serve its exports.
//!
//! Each takeover has an epoch. A head claims the next epoch by creating its file, which only one
//! head can do. Then the head waits until the head before it has surely ended, and serves while it
//! renews its record. docs/failover.md has the protocol and its assumptions.
//!
//! | file | content |
//! |---|---|
//! | `record` | the record of an epoch, as it is on the shared storage |
//! | `times` | lease, renewal and waits |
//! | `machine` | the protocol, without clock and storage |
//! | `store` | records as files |
//! | `fence` | the site's fencing program |
//! | `kill_timer` | the kernel ends the process at the end of its lease |
//! | `serving_right` | the check before each operation, reply and write |
//! | `guarded_disk` | files that are written only while the lease holds |
//! | `driver` | carries out the steps of `machine` |
//! | `admission` | connections to a head that waits |
//! | `standby`, `renewal` | a head that waits, and one that serves |

mod admission;
mod driver;
mod fence;
mod guarded_disk;
mod kill_timer;
mod machine;
pub(crate) mod record;
mod renewal;
mod serving_right;
#[cfg(test)]
mod simulation;
mod standby;
mod store;
mod times;

use std::path::PathBuf;
use std::time::Duration;

pub use admission::{admit, ignore_attempts};
pub(crate) use guarded_disk::{GuardedDisk, GuardedFile};
pub use renewal::HeldLease;
pub(crate) use serving_right::ServingRight;
pub use standby::wait_for_lease;
pub(crate) use store::holder;

/// Options of a head that shares its state directory with other heads.
#[derive(Clone, Debug)]
pub struct SharedState {
    /// Name of this head in the lease, in `status`, and for the fencing program.
    pub head: String,
    pub lease: Duration,
    /// Program and arguments.
    pub fence: Vec<String>,
    /// A takeover without a success of the fencing program is refused.
    pub is_fence_required: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error("--head {0:?}: not 1 to 64 letters, digits, dots, hyphens and underscores")]
    Name(String),
    #[error(
        "{0}: this directory is on NFS, whose clients cache names; use storage that all heads see in the same way"
    )]
    Uncoherent(PathBuf),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{doing}: {source}")]
    System { doing: &'static str, source: std::io::Error },
    #[error(
        "{0} operations hang in the exported file systems; the lease is not released, and the next head waits until it ends"
    )]
    Unfinished(usize),
    #[error("this head has lost the lease of the shared state directory: {0}")]
    Lost(&'static str),
}
