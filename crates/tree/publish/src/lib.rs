//! Turns a directory, or a tree that the caller assembles, into the next signed revision of its
//! database. The caller gives the start time
//! and ready keys; the clock only judges young timestamps.
//!
//! The walk is a graph of small jobs that never wait for each other (`walk.rs`). Depth costs heap
//! but no stack. Memory does not depend on the size of the tree.

mod assembly;
mod attributes;
mod cache;
mod cursor;
mod descriptor;
mod entry;
mod error;
mod exclusion;
mod extent;
mod file;
mod frames;
#[doc(hidden)]
pub mod fuzzing;
mod links;
mod listing;
mod log;
mod node;
mod options;
mod pages;
mod plan;
mod previous;
mod printable;
mod record;
mod republish;
mod revision;
mod source_check;
mod walk;
mod xattrs;

pub use assembly::{Assembly, AssemblyError, publish_assembly};
pub use error::{Error, Fault};
pub use log::{CosignFn, CosignOutcome, CosignedHead, LogPublisher, PendingLog, cosign};
pub use options::{
    DeletionMax, LEVEL_DEFAULT, Options, Progress, RefusePrivate, Signer, Skipped, SnapshotSource,
    Summary,
};
pub use plan::check_options;
pub use republish::{Republication, Republished, republish};
pub use revision::publish;
pub use source_check::check_outside_source;
