//! A trail on disk: a directory of segments, the key of what is still to come, and the latest seal as a checkpoint. The only part of this crate that does I/O.

mod compress;
mod disk;
mod files;
mod log;
mod prune;
mod reader;
mod verify;
mod writer;

pub use compress::compress;
pub use disk::{Disk, DiskFile, SystemDisk};
pub use files::{CHECKPOINT, KEY, REMOVED, SegmentFile, TORN, create, read_checkpoint, read_key, segments, segments_removed};
pub use log::{Log, LogError, Opened, Options, Rotation};
pub use prune::{Retention, prune};
pub use reader::{Entry, Segment, entries};
pub use verify::{Fault, FaultKind, Report, Trust, verify};
pub use writer::{After, Counts, Durable, Keeping, Policy, Trail};

#[cfg(test)]
mod tests;
