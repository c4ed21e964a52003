//! Databases of published trees in S3: a driver of [`vouch_tree_store`].
//!
//! Objects have the names and bytes of a database directory, so web servers and clients that read
//! one read the bucket too. Conditional writes decide between writers: packs and segments are never
//! replaced; the manifest is replaced only if it is the one that the writer began with.
//!
//! Nothing read from the bucket is trusted: readers of the store verify frames.

mod address;
mod cache;
mod config;
mod database;
mod disk;
mod download;
mod error;
mod fitness;
mod lock;
mod objects;
mod runtime;

pub use database::open;
pub use fitness::{Fitness, check_fitness};

/// Makes the store open `s3://` addresses by this crate. Called once at start.
pub fn register() {
    vouch_tree_store::register_bucket_driver(open);
}
