//! Every limit of the replica, with its reason. What a user may set is in [`Limits`]; the rest is
//! fixed here.

use std::time::Duration;

/// What a user may set.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once, over all threads. Each costs a file descriptor, some hundred bytes here
    /// when idle, and at most [`CONNECTION_LEN_MAX`] when busy. Lowered to what the process may
    /// open.
    pub connections_max: usize,
    /// A connection without a request for this long is closed: a client that is gone without a word
    /// must not hold a descriptor for ever. Clients reconnect at the cost of a round trip.
    pub idle_max: Duration,
    /// A peer that has begun a request must end it within this, and one that owes us reading must
    /// take 64 KiB within it: else a few thousand sleepers could hold all connections.
    pub stall_max: Duration,
    /// After the signal to stop, time for replies under way.
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

/// Longest request: a GETDATA of the most handles with the longest credential and verifier that RPC
/// allows is 2,940 bytes; nothing that this program means is longer.
pub(super) const REQUEST_LEN_MAX: usize = 4096;

/// Bytes taken from a socket by one read, and so the most that can wait undecoded in a connection.
pub(super) const READ_LEN_MAX: usize = 8 * 1024;

/// No further request of a connection is decoded while its output holds this many pieces. One
/// request adds at most two a handle, so a queue stays below 256 pieces, that is 8 KiB.
pub(super) const PIECES_MAX: usize = 64;

/// No further request of a connection is decoded while this much of its output waits. It bounds how
/// far a peer can send us ahead of its own reading; nothing of it lies in memory.
pub(super) const OUTPUT_LEN_MAX: u64 = 4 << 20;

/// What a busy connection may hold in this process: undecoded input, an incomplete request, pieces,
/// reply headers.
pub const CONNECTION_LEN_MAX: usize = 32 * 1024;

/// A run of frames in a pack at least this long goes out by sendfile; shorter ones are read into a
/// buffer and leave in one send together with what surrounds them. Measured on loopback: below it a
/// sendfile's fixed cost is more than the copy.
pub(super) const SENDFILE_LEN_MIN: u64 = 16 * 1024;

/// The thread's buffer for what doesn't go by sendfile.
pub(super) const SEND_BUFFER_LEN: usize = 64 * 1024;

/// Bytes sent for a connection before the thread's others have their turn.
pub(super) const TURN_LEN_MAX: u64 = 1 << 20;

/// Reads of a connection before the thread's others have their turn.
pub(super) const TURN_READS_MAX: u32 = 8;

/// Connections taken from a listener before those that are open have their turn.
pub(super) const TURN_ACCEPTS_MAX: u32 = 64;

/// What a peer must take within `stall_max` while replies wait for it: 64 KiB in 30 s is 2 KiB/s,
/// less than any link that could mount a tree.
pub(super) const STALL_LEN_MIN: u64 = 64 * 1024;

/// With more than nine tenths of `connections_max` in use, idle connections are closed after this
/// instead, so that sleepers can't keep others out.
pub(super) const IDLE_CROWDED_MAX: Duration = Duration::from_secs(5);

/// Pause after the system refuses another connection (descriptors or memory are out): trying at
/// once would only burn the core that could free some.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often databases are looked at for a new revision, and connections for time-outs.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// Descriptors kept back from connections: packs and segments of the databases, listeners, epoll,
/// logs, the metrics page.
pub(super) const DESCRIPTORS_RESERVED: usize = 1024;
