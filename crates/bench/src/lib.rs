//! What each layer of a file service costs, measured: workloads, load generators, statistics and
//! reports.
//!
//! A [`Case`] is one thing to measure; a [`Subject`] is something that it is measured on: an NFS
//! server under one flavour, a mounted directory, scp. [`pairs::Bench`] measures a list of cases on
//! all subjects in turn, round by round, and gathers a [`Run`], from which the table, the CSV and
//! the page are made, now or later. Knows no command line and prints nothing.

pub mod agent;
pub mod case;
pub mod content;
pub mod cpu;
mod error;
pub mod latency;
pub mod machine;
pub mod nfs;
pub mod null;
pub mod pairs;
pub mod plan;
mod printable;
pub mod record;
pub mod report;
pub mod sample;
pub mod statistics;
pub mod stop;
pub mod subject;
pub mod target;
mod written;

pub use case::Case;
pub use error::Error;
pub use latency::Latency;
pub use record::Run;
pub use sample::Sample;
pub use stop::Stop;
pub use subject::Subject;
