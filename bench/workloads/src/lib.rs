//! Benchmarks of servers and libraries that `vouch bench` cannot start, with its sessions,
//! statistics and CPU accounting.
//!
//! - `exports`: builds of `vouch export` and NFS-Ganesha, under each flavour, in one run
//! - `seal`: message protection, compared with libipsec-mb
//! - `audit`: the audit trail without a server
//! - `authority`: verified look-ups of names, beside a DNS server
//! - `key_pairs`: opening of trees with Ed25519 keys, beside trees with key pairs
//! - `tls`: handshakes beside nginx, and memory of idle connections

#![allow(missing_docs, reason = "documents say what names do not")]

pub mod dns;
pub mod realm;
pub mod servers;
pub mod tls_servers;

use std::fmt::Display;

use vouch_bench::runner::{ProgressSink, Rounds, Runner};
use vouch_bench::{Run, StopFlag, Subject};

/// Ends the program with one line on standard error.
pub trait OrExit<T> {
    /// Unwinds on an error, so that the started servers end too.
    fn or_exit(self, doing: impl Display) -> T;
}

impl<T, E: Display> OrExit<T> for Result<T, E> {
    fn or_exit(self, doing: impl Display) -> T {
        self.unwrap_or_else(|error| {
            eprintln!("{doing}: {error}");
            std::panic::resume_unwind(Box::new("the benchmark ended early"))
        })
    }
}

pub fn bench(subjects: Vec<Box<dyn Subject>>, rounds: usize) -> Runner {
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let rounds = Rounds { min: rounds, max: rounds, spread_max: 0.0, warm_up: true };
    Runner::new(
        Run::begin(command, false),
        subjects,
        rounds,
        Box::new(StandardError),
        StopFlag::default(),
    )
}

/// Prints each measurement to standard error as it starts.
struct StandardError;

impl ProgressSink for StandardError {
    fn update(&mut self, done_s: f64, total_s: f64, what: &str) {
        eprintln!("{:3.0}%  {what}", 100.0 * done_s / total_s.max(1e-9));
    }
}
