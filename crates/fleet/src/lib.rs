//! Simulation of a fleet: thousands of nodes start the same job from a published tree, through web
//! caches, after a release.
//!
//! The nodes run the real client (`vouch-tree-client`) on a virtual clock. Only the network is
//! simulated: links with bandwidth, latency and loss, caches that fail, one origin. Computing takes
//! no virtual time. The same options and seed give the same figures.
//!
//! - [`Release`] publishes the tree, before and after the release.
//! - [`NetworkOptions`] describes links, caches and failures.
//! - [`simulate`] runs the fleet and returns an [`Outcome`].

#![allow(missing_docs, reason = "documents say what names do not")]

mod cache; // What a web cache keeps.
mod events; // Requests, transfers and failures in the order of their time.
mod link; // Bandwidth, latency and loss of one server's link.
mod network; // The network on the virtual clock, as a transport of the client.
mod node; // One node: follows the release and runs the job.
mod release; // The published tree.
mod simulation; // Runs all nodes and sums up.

pub use network::{CacheFailure, NetworkOptions, Traffic};
pub use node::{JobResult, run_job};
pub use release::{Job, Release, Site};
pub use simulation::{FleetOptions, Outcome, simulate};

/// Why a simulation can't run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {error}")]
    Io { path: std::path::PathBuf, error: std::io::Error },
    #[error("publishing the tree: {0}")]
    Publish(String),
    #[error("{0}")]
    Option(&'static str),
}
