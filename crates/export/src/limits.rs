//! Limits of the service, with their reasons. A user may set those in [`Limits`]. The limits of
//! protocol state are in `vouch_nfs4_server::Limits`.

use std::time::Duration;

/// Limits that a user may set.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Open connections. Each costs a descriptor and some hundred bytes when idle. The limit on
    /// descriptors lowers it.
    pub connections_max: usize,
    /// Open connections of one address (of a /64 network for IPv6), and at most four times those
    /// that are left for all. `nconnect` asks for at most 16; many clients may share an address
    /// behind NAT.
    pub connections_per_address_max: usize,
    /// Time-out for an incomplete request, and for a peer that does not read its replies. Otherwise
    /// idle peers could hold memory for ever.
    pub stall_max: Duration,
    pub waiting_threads_max: usize,
    pub waiting_calls_max: usize,
    pub waiting_len_max: usize,
    pub drain_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 65_536,
            connections_per_address_max: 16_384,
            stall_max: Duration::from_secs(60),
            waiting_threads_max: 32,
            waiting_calls_max: WAITING_ALL_MAX,
            waiting_len_max: WAITING_LEN_MAX,
            drain_max: Duration::from_secs(3),
        }
    }
}

/// Bytes of one read, unless a long record is incomplete: some hundred small calls.
pub(super) const READ_LEN: usize = 64 * 1024;

/// Shortest call that joins the verify batch. Copying a call of 64 KiB from the socket costs a
/// tenth of its verification. If the CPU verifies sixteen long messages side by side
/// ([`long_wraps`](vouch_rpcsec_gss::long_wraps)), 4 KiB is worth it.
pub(super) const fn batch_len_min(lanes: usize) -> usize {
    if lanes >= 16 { 4 * 1024 } else { 64 * 1024 }
}

/// An incomplete record up to this length is copied out of the receive buffer. A longer one keeps
/// the buffer. Less than one read, so that a long WRITE whose head came with one read is not
/// copied.
pub(super) const HELD_COPY_LEN_MAX: usize = 16 * 1024;

/// Memory for incomplete calls of all connections: some hundred long calls. When an address has
/// used its share, the server reads at most [`READ_LEN_SHORT`] of a further call.
pub(super) const HELD_LEN_MAX: usize = 512 << 20;

/// Bytes of one read when the quota for incomplete calls is used up: a small call.
pub(super) const READ_LEN_SHORT: usize = 4096;

/// One address may use this many times what is left for all. A single address gets four fifths.
pub(super) const SHARE: usize = 4;

/// Receive buffers that a thread keeps, if the verify batch does not need more.
pub(super) const SPARE_BUFFERS_MAX: usize = 4;

/// Short reply buffers that a thread keeps, and their longest length. READ replies in memory are
/// shorter.
pub(super) const SPARE_REPLIES_MAX: usize = 256;
pub(super) const SPARE_REPLY_LEN_MAX: usize = 80 * 1024;

/// Long reply buffers that a thread keeps, for READ under privacy, whose data is sealed in memory.
/// A reply is a little over 1 MiB; the limit allows for the growth step of the buffer.
pub(super) const SPARE_LONG_REPLIES_MAX: usize = 32;
pub(super) const SPARE_LONG_REPLY_LEN_MAX: usize = 2 << 20;

/// Initial size of a reply buffer: fits most replies to metadata operations.
pub(super) const REPLY_LEN_START: usize = 1024;

pub(super) const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// A connection with this many unsent bytes in files is not read. They use no memory. A Linux
/// client has 64 READs of 1 MiB in flight.
pub(super) const OUTPUT_SPANS_MAX: u64 = 128 << 20;

/// A connection with this many unsent replies is not read.
pub(super) const OUTPUT_REPLIES_MAX: usize = 1024;

/// Ready replies of this length are sent before the turn ends, so that client and server overlap.
pub(super) const FLUSH_LEN: usize = 64 * 1024;

/// With this many ready replies, halfway through a read, the worker checks if the client waits for
/// them. It is half the lanes of the widest vectors.
pub(super) const SEND_SOON_COUNT: usize = 8;
pub(super) const SEND_SOON_LEN_MAX: usize = 256 * 1024;

/// Most replies that are sealed together: several times the lanes of the widest vectors.
pub(super) const SEAL_COUNT_MAX: usize = 64;
/// Bytes sealed together, for each lane ([`long_wraps`](vouch_rpcsec_gss::long_wraps)): one READ
/// reply.
pub(super) const SEAL_LEN_EACH_MAX: usize = 1 << 20;

pub(super) const SEND_PIECES_MAX: usize = 64;

/// Waiting calls of one connection: the slots of a session.
pub(super) const WAITING_PER_CONNECTION_MAX: usize = 256;

/// Arguments of a waiting call are copied up to this length. Longer ones keep a receive buffer of
/// more than 1 MiB occupied.
pub(super) const WAITING_COPY_LEN_MAX: usize = 128 * 1024;

/// Threads that may wait for the name service. A dead name server occupies one for some seconds.
pub(super) const NAMES_THREADS_MAX: usize = 32;

/// A pool with this many waiting tasks is crowded.
pub(super) const WAITING_MAX: usize = 1024;

/// Waiting calls of all addresses. Each holds its request: 1 MiB at worst.
const WAITING_ALL_MAX: usize = 4096;

/// Memory of waiting calls: some hundred long ones.
const WAITING_LEN_MAX: usize = 512 << 20;

/// Moves of a call between the pools for disks and for names. Afterwards it waits for both in one
/// pool.
pub(super) const MOVES_MAX: u8 = 8;

pub(super) const HOST_LOOKUP_WAITING_MAX: usize = 1024;

/// Concurrent lookups of host names: half of the threads, so that user names have the others.
pub(super) const HOST_LOOKUPS_MAX: usize = NAMES_THREADS_MAX / 2;

/// Time-out of a connection that waits for its host name, in milliseconds: a resolver that asks
/// three servers twice, five seconds each.
pub(super) const HOST_LOOKUP_MS_MAX: u64 = 30_000;

/// An idle pool thread ends after this time.
pub(super) const WAITING_THREAD_IDLE: Duration = Duration::from_secs(20);

/// Reads of one connection before the worker serves others.
pub(super) const TURN_READS_MAX: u32 = 16;

pub(super) const CALLBACKS_OUTSTANDING_MAX: usize = 1024;

pub(super) const CALLBACK_CONNECTIONS_MAX: usize = 4096;

pub(super) const CALLBACK_CONNECT_MAX: Duration = Duration::from_secs(3);

pub(super) const CALLBACK_DIALLERS_MAX: usize = 8;
pub(super) const CALLBACKS_WAITING_MAX: usize = 4096;

pub(super) const TICK: Duration = Duration::from_secs(1);

/// TCP keepalive notices a dead client within five minutes. Leases expire earlier; keepalive frees
/// the descriptor.
pub(super) const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
pub(super) const KEEPALIVE_PROBES: u32 = 5;

pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const DESCRIPTORS_RESERVED: usize = 4096;

pub(super) fn connections_max(descriptors: usize) -> usize {
    (descriptors - DESCRIPTORS_RESERVED.min(descriptors / 2)).max(1)
}

/// Limits of the engine in a process with this many descriptors. An open file takes two, and so
/// does a delegation. A quarter is left for the cache of open files.
pub(super) fn of_engine(descriptors: usize) -> vouch_nfs4_server::Limits {
    let limits = vouch_nfs4_server::Limits::default();
    vouch_nfs4_server::Limits {
        opens_max: limits.opens_max.min(descriptors / 4).max(1),
        delegations_max: limits.delegations_max.min(descriptors / 20),
        ..limits
    }
}

/// Further clients are counted together.
pub(super) const METRIC_CLIENTS_MAX: usize = 1024;
