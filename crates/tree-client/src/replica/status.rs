//! What is known of replicas and traffic, for those who look from outside.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a replica stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplicaState {
    /// Not asked yet.
    Untried,
    /// Answers.
    Up,
    /// Answers, and another is several times as fast.
    Slow,
    /// Failed when asked last.
    Down,
    /// Offers an older revision than another; serves frames.
    Stale,
    /// Sent what can't be true; set aside.
    Liar,
}

impl fmt::Display for ReplicaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Untried => "untried",
            Self::Up => "up",
            Self::Slow => "slow",
            Self::Down => "down",
            Self::Stale => "stale",
            Self::Liar => "liar",
        })
    }
}

/// What is known of one replica.
#[derive(Debug, Clone)]
pub struct ReplicaStatus {
    /// Where it is.
    pub address: SocketAddr,
    /// The name by which it was found.
    pub host: String,
    /// How it stands.
    pub state: ReplicaState,
    /// Its mean time to answer; `None` before the first answer.
    pub latency: Option<Duration>,
    /// The newest revision that it offered; 0 before the first.
    pub revision: u64,
    /// Calls made.
    pub asked: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Times that it sent what can't be true.
    pub lied: u64,
    /// What went wrong last.
    pub last_error: Option<String>,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Traffic of a tree since it was opened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(crate) struct CounterCells {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl CounterCells {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Frames that came from replicas and were verified.
    network_frames,
    /// Their bytes, as stored.
    network_bytes,
    /// Frames found in the disk cache and verified.
    disk_frames,
    /// Frames found in memory.
    memory_frames,
    /// Requests sent to a second replica because the first was late.
    hedges,
    /// Frames and fsinfos that were not what they had to be.
    lies,
    /// Time spent hashing frames from replicas, in nanoseconds.
    verify_ns,
    /// Calls made to replicas.
    calls,
    /// Times that the replicas were asked for a newer revision.
    refreshes,
}

impl CounterCells {
    pub(crate) fn add(cell: &AtomicU64, n: u64) {
        cell.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn verified(&self, len: usize, took: Duration) {
        Self::add(&self.network_frames, 1);
        Self::add(&self.network_bytes, len as u64);
        Self::add(&self.verify_ns, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}
