//! A [`Subject`] is a system under test: an NFS server under one flavour, a mounted directory, scp.
//! A [`Case`] is one measurement, and a [`workload`] a list of cases. The [`runner`] measures each
//! case on all subjects in turn, round by round, and returns a [`Run`], which reports need. This
//! crate parses no command line and prints nothing.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

pub mod agent;
mod byte_units;
pub mod case;
pub mod content;
pub mod cpu;
mod error;
mod escape;
pub mod latency;
pub mod machine;
pub mod nfs;
pub mod null_calls;
mod page_versions;
pub mod published_tree;
pub mod record;
pub mod report;
pub mod runner;
mod sample;
pub mod statistics;
mod stop_flag;
pub mod subject;
pub mod target;
pub mod workload;

pub use case::Case;
pub use error::Error;
pub use latency::Latency;
pub use record::Run;
pub use sample::Sample;
pub use stop_flag::StopFlag;
pub use subject::Subject;
