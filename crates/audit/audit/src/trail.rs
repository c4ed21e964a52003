//! Trails on disk: directories of segments, the current signing key, and the latest seal as a
//! checkpoint.

mod compress;
mod disk;
mod file_history;
mod files;
mod follow;
mod index;
mod log;
mod position_state;
mod prove;
mod prune;
mod reader;
mod seals;
mod search;
mod verify;
mod writer;

pub use disk::{Disk, DiskFile, Lock, SystemDisk};
pub use file_history::{FileHistory, FileSeed, Moment, NameSpan, file_history};
pub use files::{
    CHECKPOINT_FILE, KEY_FILE, SegmentFile, create_key, read_checkpoint, read_key, replace_file,
    segments,
};
pub use follow::{Follower, Position};
pub use index::{Index, Term};
pub use log::{AppendBatch, Log, LogError, LostCount, Options, QuarantineFile, Recovery, Rotation};
pub use position_state::{ChainTag, PositionState, position_state};
pub use prove::{prove, prove_under_seal};
pub use prune::Retention;
pub use reader::{Entry, Segment, entries, records};
pub use seals::seals_from;
pub use search::{Alternatives, Hit, Outcome, Query, SearchCost, SearchMode, search};
pub use verify::{Fault, FaultKind, Report, Trust, verify};
pub use writer::{Callback, Counts, Durability, Policy, Trail, WriterOptions};

#[cfg(test)]
mod tests;
