use std::time::Duration;

/// Request line and headers. A path of 4 KiB takes 12 KiB if every byte is escaped.
pub(crate) const REQUEST_LEN_MAX: usize = 32 * 1024;

pub(crate) const HEADERS_MAX: usize = 64;

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

pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) const PEM_LEN_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
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
        Self {
            connections_max: 1024,
            address_connections_max: 128,
            idle_max: Duration::from_secs(60),
            stall_max: Duration::from_secs(30),
        }
    }
}
