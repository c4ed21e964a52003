//! Limits of the replica, each with its reason. Configurable limits are in [`Limits`].

use std::time::Duration;

/// Configurable limits.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Most connections of all threads. Each costs a descriptor and some hundred bytes when idle,
    /// and at most 32 KiB when busy.
    pub connections_max: usize,
    /// Idle time after which a connection is closed, so that dead clients hold no descriptors.
    /// Clients reconnect in one round trip.
    pub idle_max: Duration,
    /// Time to complete a request, and to accept 64 KiB of replies. Otherwise a few thousand
    /// stalled peers could hold all connections.
    pub stall_max: Duration,
    /// Time for replies in progress after the order to stop.
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

/// A GETDATA with the most handles and the longest credential and verifier has 2,940 bytes.
pub(super) const REQUEST_LEN_MAX: usize = 4096;

/// A head of HTTP: caches in between add some fields to those of the client.
pub(super) const HEAD_LEN_MAX: usize = 8 * 1024;

/// Bytes of one read, and so the most undecoded input of a connection.
pub(super) const READ_LEN_MAX: usize = 8 * 1024;

/// Pieces of output at which decoding pauses. A request adds at most two a handle, so a queue stays
/// below 256 pieces, or 8 KiB.
pub(super) const PIECES_MAX: usize = 64;

/// Bytes of output at which decoding pauses. Bounds how far a peer can send ahead of its reading;
/// the bytes are in files, not in memory.
pub(super) const OUTPUT_LEN_MAX: u64 = 4 << 20;

/// Bytes of reply heads at which decoding pauses: small answers in a row share a piece.
pub(super) const OWN_LEN_MAX: u64 = 8 * 1024;

/// Memory of a busy connection: undecoded input, an incomplete request, pieces, reply headers.
#[cfg(test)]
pub(crate) const CONNECTION_LEN_MAX: usize = 32 * 1024;

/// Shortest run of frames sent by sendfile. Shorter runs are copied and sent together with their
/// surroundings. On loopback, a shorter sendfile costs more than the copy.
pub(super) const SENDFILE_LEN_MIN: u64 = 16 * 1024;

/// Buffer of a thread for data without sendfile.
pub(super) const SEND_BUFFER_LEN: usize = 64 * 1024;

pub(super) const TURN_LEN_MAX: u64 = 1 << 20;

pub(super) const TURN_READS_MAX: u32 = 8;

/// Connections accepted before open ones get their turn.
pub(super) const TURN_ACCEPTS_MAX: u32 = 64;

/// Bytes that a peer must accept within `stall_max`: 64 KiB in 30 s is 2 KiB/s, slower than any
/// usable link.
pub(super) const STALL_LEN_MIN: u64 = 64 * 1024;

/// Idle limit while more than nine tenths of `connections_max` are in use, so that idle peers can't
/// exclude others.
pub(super) const IDLE_CROWDED_MAX: Duration = Duration::from_secs(5);

/// Pause after accept failed for lack of descriptors or memory: an immediate retry would only burn
/// a core.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Interval of checks for new revisions and for time-outs.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// Descriptors reserved for packs and segments of the databases, listeners, epoll, logs and the
/// metrics page.
pub(super) const DESCRIPTORS_RESERVED: usize = 1024;
