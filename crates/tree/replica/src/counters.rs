//! Of each thread, and their sums: separate counters avoid cache line contention.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Null,
    FsinfoOk,
    FsinfoNoTree,
    DataOk,
    DataFailed,
    StatementOk,
    StatementRefused,
    /// Wrong program, version or procedure, or invalid arguments.
    Rejected,
    HttpOk,
    HttpNotModified,
    HttpNotFound,
    HttpFailed,
    HttpRejected,
}

impl Request {
    /// As on the metrics page.
    pub(super) const ALL: [(Self, &'static str, &'static str); 13] = [
        (Self::Null, "null", "ok"),
        (Self::FsinfoOk, "getfsinfo", "ok"),
        (Self::FsinfoNoTree, "getfsinfo", "no_tree"),
        (Self::DataOk, "getdata", "ok"),
        (Self::DataFailed, "getdata", "failed"),
        (Self::StatementOk, "putstatement", "ok"),
        (Self::StatementRefused, "putstatement", "refused"),
        (Self::Rejected, "other", "rejected"),
        (Self::HttpOk, "http", "ok"),
        (Self::HttpNotModified, "http", "not_modified"),
        (Self::HttpNotFound, "http", "not_found"),
        (Self::HttpFailed, "http", "failed"),
        (Self::HttpRejected, "http", "rejected"),
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    Peer,
    /// After the last response of HTTP.
    Complete,
    Failed,
    BadRequest,
    Idle,
    SlowRequest,
    SlowReader,
    Database,
    ClearText,
    Shutdown,
}

impl Closed {
    pub(super) const ALL: [(Self, &'static str); 10] = [
        (Self::Peer, "peer"),
        (Self::Complete, "complete"),
        (Self::Failed, "failed"),
        (Self::BadRequest, "bad_request"),
        (Self::Idle, "idle"),
        (Self::SlowRequest, "slow_request"),
        (Self::SlowReader, "slow_reader"),
        (Self::Database, "database"),
        (Self::ClearText, "clear_text"),
        (Self::Shutdown, "shutdown"),
    ];
}

/// Powers of four from 4 µs to 4.2 s. Larger values appear only in the total count.
pub(super) const LATENCY_US_MAX: [u64; 11] =
    [4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304];

#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counters {
    pub(super) accepted: Count,
    pub(super) refused: Count,
    pub(super) accept_failed: Count,
    pub(super) received_len: Count,
    pub(super) sent_len: Count,
    pub(super) handles_found: Count,
    pub(super) handles_missing: Count,
    closed: [Count; Closed::ALL.len()],
    requests: [Count; Request::ALL.len()],
    latency: [Count; LATENCY_US_MAX.len() + 1],
    latency_us: Count,
}

impl Counters {
    pub(super) fn request(&self, request: Request) {
        self.requests[request as usize].add(1);
    }

    pub(super) fn requests(&self, request: Request) -> u64 {
        self.requests[request as usize].get()
    }

    pub(super) fn close(&self, reason: Closed) {
        self.closed[reason as usize].add(1);
    }

    pub(super) fn closed(&self, reason: Closed) -> u64 {
        self.closed[reason as usize].get()
    }

    pub(super) fn latency(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket =
            LATENCY_US_MAX.iter().position(|&max| us <= max).unwrap_or(LATENCY_US_MAX.len());
        self.latency[bucket].add(1);
        self.latency_us.add(us);
    }

    pub(super) fn latencies(&self) -> ([u64; LATENCY_US_MAX.len() + 1], u64) {
        let mut below = 0;
        let cumulative = std::array::from_fn(|i| {
            below += self.latency[i].get();
            below
        });
        (cumulative, self.latency_us.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_cumulative_like_prometheus_buckets() {
        let counters = Counters::default();
        for us in [1, 4, 5, 1000, 5_000_000] {
            counters.latency(Duration::from_micros(us));
        }
        assert_eq!(counters.latencies(), ([2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5], 5_001_010));
    }

    #[test]
    fn lists_have_each_case_at_its_index() {
        assert!(Request::ALL.iter().enumerate().all(|(i, (request, ..))| *request as usize == i));
        assert!(Closed::ALL.iter().enumerate().all(|(i, (closed, _))| *closed as usize == i));
    }
}
