//! Limits, each with its reason. [`Limits`] has the configurable ones.

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Limits {
    /// Limit for all threads. Each connection costs a descriptor and some hundred bytes when idle,
    /// at most 32 KiB when busy.
    pub connections_max: usize,
    /// Dead clients hold no descriptors. Clients reconnect in one round trip.
    pub idle_max: Duration,
    /// To complete a request, and to accept 64 KiB of replies: stalled peers must not hold all
    /// connections.
    pub stall_max: Duration,
    pub drain_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 65_536,
            idle_max: Duration::from_secs(600),
            stall_max: Duration::from_secs(30),
            drain_max: Duration::from_secs(5),
        }
    }
}

/// The longest GETDATA, credential and verifier have 2,940 bytes.
pub(super) const REQUEST_LEN_MAX: usize = 4096;

/// Caches add some fields to a client's head.
pub(super) const HEAD_LEN_MAX: usize = 8 * 1024;

/// The most undecoded input of a connection.
pub(super) const READ_LEN_MAX: usize = 8 * 1024;

/// Decoding pauses here. A request adds at most two pieces a handle, so a queue stays below 256
/// pieces, or 8 KiB.
pub(super) const PIECES_MAX: usize = 64;

/// Decoding pauses at this length of output. The bytes are in files, not in memory.
pub(super) const OUTPUT_LEN_MAX: u64 = 4 << 20;

/// Decoding pauses at this length of reply heads: small answers in a row share a piece.
pub(super) const OWN_LEN_MAX: u64 = 8 * 1024;

/// Undecoded input, an incomplete request, pieces, reply headers.
#[cfg(test)]
pub(crate) const CONNECTION_LEN_MAX: usize = 32 * 1024;

/// Shorter runs are copied and sent with their neighbours: on loopback, a shorter sendfile costs
/// more.
pub(super) const SENDFILE_LEN_MIN: u64 = 16 * 1024;

pub(super) const SEND_BUFFER_LEN: usize = 64 * 1024;

pub(super) const TURN_LEN_MAX: u64 = 1 << 20;

pub(super) const TURN_READS_MAX: u32 = 8;

/// Connections accepted before open ones get their turn.
pub(super) const TURN_ACCEPTS_MAX: u32 = 64;

/// Within `stall_max`: 64 KiB in 30 s is 2 KiB/s, slower than any usable link.
pub(super) const STALL_LEN_MIN: u64 = 64 * 1024;

/// Idle limit while over nine tenths of `connections_max` are in use: idle peers cannot exclude
/// others.
pub(super) const IDLE_CROWDED_MAX: Duration = Duration::from_secs(5);

/// Pause after a lack of descriptors or memory: an immediate retry would only burn a core.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(super) const TICK: Duration = Duration::from_secs(1);

/// Covers packs and segments, listeners, epoll, logs and the metrics page.
pub(super) const DESCRIPTORS_RESERVED: usize = 1024;
