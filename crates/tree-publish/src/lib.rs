//! Publishing: a directory becomes the next signed revision of its database.
//!
//! Owns the walk over the source, the reading of files, the stat cache that spares reading what has
//! not changed, and the signing and committing of a revision. Never reads the wall clock but to
//! tell whether a timestamp is too young to be trusted: when a revision starts is the caller's to
//! say. Keys come in ready to sign; where frames lie is the store's.
//!
//! The walk is a graph of small jobs that never wait for each other (see `walk.rs`), so that its
//! depth costs heap and no stack, and its memory does not depend on the size of the tree.

mod attributes;
mod cache;
mod cursor;
mod descriptor;
mod entry;
mod error;
mod extent;
mod file;
mod frames;
#[doc(hidden)]
pub mod fuzzing;
mod links;
mod listing;
mod node;
mod options;
mod pages;
mod place;
mod printable;
mod record;
mod revision;
mod walk;
mod xattrs;

pub use error::{Error, Fault};
pub use options::{LEVEL_DEFAULT, OPAQUE_MARKER, Options, Progress, SKIPPED_COUNT_MAX, Signer, Skipped, Summary};
pub use place::check_places;
pub use revision::{check_options, publish};
