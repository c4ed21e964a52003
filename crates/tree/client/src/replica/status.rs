use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::http::HttpOptions;

/// What the client thinks of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplicaState {
    /// No request yet.
    Untried,
    /// The last request succeeded.
    Up,
    /// Several times slower than another.
    Slow,
    /// The last request failed.
    Down,
    /// Offers an older revision; serves frames.
    Stale,
    /// Sent provably wrong data; excluded.
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

/// One replica, as the client sees it.
#[derive(Debug, Clone)]
pub struct ReplicaStatus {
    /// Unspecified for a URL, which the HTTP client resolves.
    pub address: SocketAddr,
    /// Name that led to the address.
    pub host: String,
    /// Decides how often it is asked.
    pub state: ReplicaState,
    /// Mean; `None` before the first answer.
    pub latency: Option<Duration>,
    /// Newest offered; 0 before the first.
    pub revision: u64,
    /// Requests.
    pub asked: u64,
    /// Requests without an answer in time, or with an error.
    pub failed: u64,
    /// Times of provably wrong data.
    pub lied: u64,
    /// Text for people.
    pub last_error: Option<String>,
}

impl ReplicaStatus {
    /// For [`crate::DatabaseFiles`]: a URL, or an address. A certificate has the name of the host.
    pub fn location(&self, http: &HttpOptions) -> String {
        let (host, port) = (&self.host, self.address.port());
        if host.starts_with("tls://") {
            format!("{host}:{port}")
        } else if host.contains("://") {
            host.clone()
        } else if !http.tls.is_required() {
            self.address.to_string()
        } else if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Since the tree was opened.
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
    /// Verified frames from replicas.
    network_frames,
    /// Size as stored.
    network_bytes,
    /// Verified.
    disk_frames,
    /// Frames from the memory cache.
    memory_frames,
    /// Second requests because the first was late.
    hedges,
    /// Provably wrong answers.
    lies,
    /// Hashing frames from replicas, in nanoseconds.
    verify_ns,
    /// Calls to replicas.
    calls,
    /// Looks for a newer revision.
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
