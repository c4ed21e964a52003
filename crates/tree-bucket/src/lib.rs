//! Databases of published trees in object storage: the driver of [`vouch_tree_store`] for S3.
//!
//! The objects have the names and bytes of a database directory, so that any web server or client
//! that reads such a directory reads the bucket too. Conditional writes decide between writers:
//! packs and segments are created and never replaced, and the manifest is replaced only if it is
//! still the one that the writer began with. The lock object only saves work that would be in vain.
//!
//! Nothing read from the bucket is trusted: frames are verified by the readers of the store.

#![allow(missing_docs, reason = "documents say what names do not")]

mod address;
mod cache;
mod config;
mod database;
mod disk;
mod download;
mod error;
mod garbage;
mod lock;
mod objects;
mod runtime;

pub use config::WORK_DIR_VARIABLE;
pub use database::open;

/// Lets the store open paths that begin with `s3://`.
pub fn register() {
    vouch_tree_store::register_bucket_driver(open);
}
