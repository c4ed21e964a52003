//! Limits, each with its reason.

use std::time::Duration;

/// Request line and headers. A path of 4 KiB takes 12 KiB if every byte is escaped.
pub(crate) const REQUEST_LEN_MAX: usize = 32 * 1024;

/// Browsers send about 20.
pub(crate) const HEADERS_MAX: usize = 64;

/// Requests of one HTTP/2 connection at a time. Each holds up to a block of content.
pub(crate) const STREAMS_MAX: u32 = 32;

/// Ranges of one request. A request with more gets the whole file.
pub(crate) const RANGES_MAX: usize = 32;

/// Entries of one HTML page. Longer directories have further pages.
pub(crate) const ROWS_MAX: usize = 1000;

/// Longest tag of a revision in the format.
pub(crate) const TAG_QUERY_LEN_MAX: usize = 255;

/// Revisions found by number and tag, newest first: about 2 KiB of memory each.
pub(crate) const REVISIONS_MAX: usize = 4096;

/// Bytes that decide between text and binary.
pub(crate) const SNIFF_LEN: usize = 1024;

/// Includes the wait for the client.
pub(crate) const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// Pause after a lack of descriptors or memory.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Certificate chain and key.
pub(crate) const PEM_LEN_MAX: u64 = 1 << 20;

/// Set by the administrator.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Limit for all addresses together.
    pub connections_max: usize,
    /// An IPv6 /64 network counts as one address.
    pub address_connections_max: usize,
    /// A connection without a request for this long is closed.
    pub idle_max: Duration,
    /// A connection that accepts no bytes for this long is closed.
    pub stall_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections_max: 1024, address_connections_max: 128, idle_max: Duration::from_secs(60), stall_max: Duration::from_secs(30) }
    }
}
