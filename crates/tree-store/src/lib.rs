//! Where the frames of a published tree are kept: packs and an index on disk, or memory.
//!
//! Owns the database directory: its files, its one writer's lock, what survives a crash, and what
//! is thrown away. Of a frame it understands the first byte, which tells data from metadata; only
//! marking ([`Database::collect`], [`Database::verify`]) looks inside. It never decides what is
//! true: what [`FrameSource::get`] returns is verified by [`vouch_tree::frame::open`], and which
//! revision to believe is the business of `vouch_tree::verify`.
//!
//! The files are drawn byte by byte in `docs/formats/store.md`.

mod collect;
mod commit;
mod companions;
pub mod conformance;
mod database;
pub mod disk;
mod error;
mod frames;
mod index;
mod layout;
mod lock;
mod manifest;
mod marking;
mod memory;
mod pack;
mod pack_file;
mod pack_stream;
mod recovery;
mod repair;
mod segment;
mod snapshot;
mod verify;
mod view;
mod writer;

pub use collect::{CollectOptions, Collected};
pub use companions::companions;
pub use database::Database;
pub use error::{Error, Result};
pub use frames::{FrameSink, FrameSource, Progress, ProgressFn, PutCounts};
pub use manifest::Revision;
pub use memory::MemoryStore;
pub use pack_file::{Location, PackFile};
pub use repair::Repaired;
pub use snapshot::Snapshot;
pub use verify::Verified;
pub use view::View;
pub use writer::{NewRevision, WriteOptions, Writer};
