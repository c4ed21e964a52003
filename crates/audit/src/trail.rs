//! Audit trails on disk. A trail is a directory of segments, the current signing key, and the
//! latest seal as a checkpoint. Only this module does I/O.

mod compress;
mod disk;
mod files;
mod follow;
mod index;
mod log;
mod mark;
mod names;
mod prove;
mod prune;
mod reader;
mod search;
mod verify;
mod writer;

pub use compress::compress;
pub use disk::{Disk, DiskFile, Lock, SystemDisk};
pub use files::{CHECKPOINT, KEY, REMOVED, SegmentFile, TORN, create, read_checkpoint, read_key, replace, segments, segments_removed};
pub use follow::{Follower, Place};
pub use index::{INDEX, Index, Term, build_index};
pub use log::{Appending, Aside, LOST, Log, LogError, Lost, Opened, Options, Rotation};
pub use mark::{Mark, Tag, mark};
pub use names::{Moment, Names, Seed, Span, names_of};
pub use prove::prove;
pub use prune::{PRUNED, Retention, prune};
pub use reader::{Entry, Segment, entries};
pub use search::{Forms, Hit, Outcome, Query, Reading, Searched, search};
pub use verify::{Fault, FaultKind, Report, Trust, verify};
pub use writer::{After, Counts, Durable, Keeping, Policy, Trail};

#[cfg(test)]
mod tests;
