//! The system releases a writer's lock when the process ends.

#![allow(missing_docs, reason = "documents say what names do not")]

mod bucket;
mod collect;
mod commit;
mod companions;
pub mod conformance;
mod database;
pub mod disk;
mod error;
mod frames;
mod garbage;
mod index;
mod layout;
mod lock;
mod log;
mod manifest;
mod marking;
mod memory;
mod pack;
mod pack_file;
mod pack_stream;
mod pending;
mod recovery;
mod remote;
mod repair;
mod retention;
mod scrub;
mod segment;
mod snapshot;
mod verify;
mod view;
mod writer;

pub use bucket::{
    BucketDatabase, BucketError, BucketErrorKind, BucketLock, OpenBucketFn, is_bucket_address,
    register_bucket_driver,
};
pub use collect::{CollectOptions, Collected};
pub use companions::companions;
pub use database::Database;
pub use error::{Error, Result};
pub use frames::{FrameSink, FrameSource, Progress, ProgressFn, PutCounts};
pub use garbage::Garbage;
pub use layout::{LOG_CHECKPOINT, LOG_DIR, PENDING};
pub use log::{LogFiles, open_log};
pub use manifest::Revision;
pub use memory::MemoryStore;
pub use pack::{RECORD_HEAD_LEN, record_head};
pub use pack_file::{Location, PackFile, pack_header};
pub use pending::Pending;
pub use recovery::FileTotals;
pub use remote::{RemoteFile, RemoteFrame, RemoteSearch, RemoteView};
pub use repair::Repaired;
pub use retention::Retention;
pub use scrub::{Scrub, ScrubbedPack};
pub use segment::{SegmentBytes, read_segment};
pub use snapshot::Snapshot;
pub use verify::Verified;
pub use view::View;
pub use writer::{NewRevision, WriteOptions, Writer};
