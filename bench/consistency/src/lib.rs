//! A consistency checker for any NFSv4 server. Several clients run a seeded workload through a
//! relay that makes faults ([`run`]). Each call is recorded with its real-time interval
//! ([`History`]). The [`checker`] compares the history with the models of docs/consistency.md,
//! [`shrink`] reduces a violation to the calls that matter, and [`report`] shows them.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

pub mod checker;
pub mod client;
pub mod history;
mod model;
pub mod mounted;
mod relay;
pub mod report;
mod rng;
mod rules;
pub mod run;
pub mod shrink;
mod worker;

pub use checker::{Verdict, Violation, check};
pub use client::Server;
pub use history::History;
pub use relay::Kind;
pub use rng::Rng;
pub use run::{Options, Summary};
