//! Simulates a fleet: after a release, thousands of nodes start the same job from a published tree,
//! through web caches.
//!
//! The nodes run the real client (`vouch-tree-client`) on a virtual clock. Only the network is
//! simulated: links with bandwidth, latency and loss, caches that fail, one origin. Computing takes
//! no virtual time. Equal options and seeds give equal figures.
//!
//! - [`Release`] publishes the tree, before and after the release.
//! - [`NetworkOptions`] describes links, caches and failures.
//! - [`simulate`] runs the fleet and returns an [`Outcome`].

#![allow(missing_docs, reason = "documents say what names do not")]

mod cache;
mod events;
mod link;
mod network;
mod node;
mod release;
mod simulation;

pub use network::{CacheFailure, NetworkOptions, Traffic};
pub use node::{JobResult, MEMORY, run_job};
pub use release::{Job, Release, Site};
pub use simulation::{FleetOptions, Outcome, simulate};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {error}")]
    Io { path: std::path::PathBuf, error: std::io::Error },
    #[error("publishing the tree: {0}")]
    Publish(String),
    #[error("{0}")]
    Option(&'static str),
}
