//! Limits of the service, of which a user may set those in [`Limits`].

use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Limits {
    /// Each connection costs a descriptor and some hundred bytes when idle. The limit on
    /// descriptors lowers this one.
    pub connections_max: usize,
    /// Of one address (IPv6: /64 network), at most four times those left for all. `nconnect` asks
    /// for at most 16; clients may share an address behind NAT.
    pub connections_per_address_max: usize,
    /// For an incomplete request, and for a peer that does not read its replies. Idle peers would
    /// hold memory for ever.
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

/// Some hundred small calls. An incomplete long record gets more.
pub(super) const READ_LEN: usize = 64 * 1024;

/// Copying 64 KiB costs a tenth of its verification. With sixteen lanes
/// ([`long_wraps`](vouch_rpcsec_gss::long_wraps)), 4 KiB is worth it.
pub(super) const fn batch_len_min(lanes: usize) -> usize {
    if lanes >= 16 { 4 * 1024 } else { 64 * 1024 }
}

/// Less than one read, so that a long WRITE is not copied.
pub(super) const HELD_COPY_LEN_MAX: usize = 16 * 1024;

/// Incomplete calls of all connections. Above an address's share, reads have at most
/// [`READ_LEN_SHORT`] bytes.
pub(super) const HELD_LEN_MAX: usize = 512 << 20;

pub(super) const READ_LEN_SHORT: usize = 4096;

/// An address may use this many times the rest, so a single one gets four fifths.
pub(super) const SHARE: usize = 4;

/// The verify batch may need more.
pub(super) const SPARE_BUFFERS_MAX: usize = 4;

pub(super) const SPARE_REPLIES_MAX: usize = 256;
pub(super) const SPARE_REPLY_LEN_MAX: usize = 80 * 1024;

/// For READ under privacy, sealed in memory: a little over 1 MiB, plus the buffer's growth step.
pub(super) const SPARE_LONG_REPLIES_MAX: usize = 32;
pub(super) const SPARE_LONG_REPLY_LEN_MAX: usize = 2 << 20;

/// Fits most replies to metadata operations.
pub(super) const REPLY_LEN_START: usize = 1024;

pub(super) const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// They use no memory; a Linux client has 64 READs of 1 MiB in flight.
pub(super) const OUTPUT_SPANS_MAX: u64 = 128 << 20;

pub(super) const OUTPUT_REPLIES_MAX: usize = 1024;

/// Ready replies of this length leave at once, so that client and server overlap.
pub(super) const FLUSH_LEN: usize = 64 * 1024;

/// The client may wait for this many replies: half the widest vectors' lanes.
pub(super) const SEND_SOON_COUNT: usize = 8;
/// The widest vectors' lanes, less one call of a read that is cut.
pub(super) const SEND_FULL_COUNT: usize = 15;
pub(super) const SEND_SOON_LEN_MAX: usize = 256 * 1024;

/// Several times the lanes of the widest vectors.
pub(super) const SEAL_COUNT_MAX: usize = 64;
/// For each lane ([`long_wraps`](vouch_rpcsec_gss::long_wraps)): one READ reply.
pub(super) const SEAL_LEN_EACH_MAX: usize = 1 << 20;

/// TLS handshakes in progress. Each holds up to 100 KiB: messages of the peer, and keys.
pub(super) const HANDSHAKES_MAX: usize = 1024;
/// `nconnect` asks for at most 16.
pub(super) const HANDSHAKES_PER_ADDRESS_MAX: usize = 256;
/// A handshake takes two round trips, and Linux asks a daemon for it.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Handshakes of a worker before it serves other clients again.
pub(super) const HANDSHAKES_AT_ONCE: usize = 16;
/// Between checks of TLS files and of connected clients' certificates.
pub(super) const TLS_CHECK_MS: u64 = 60_000;

pub(super) const SEND_PIECES_MAX: usize = 64;

/// The slots of a session.
pub(super) const WAITING_PER_CONNECTION_MAX: usize = 256;

/// Longer arguments keep a receive buffer of more than 1 MiB.
pub(super) const WAITING_COPY_LEN_MAX: usize = 128 * 1024;

/// A dead name server occupies a thread for some seconds.
pub(super) const NAMES_THREADS_MAX: usize = 32;

/// nslcd(8) and sssd(8) answer a few at a time. A dead directory occupies a thread for its
/// time-outs.
pub(super) const LOOKUP_THREADS_MAX: usize = 32;

/// In each cache. Further callers get NFS4ERR_DELAY.
pub(super) const PENDING_LOOKUPS_MAX: usize = 4096;

/// They leave half of the threads to callers that wait.
pub(super) const REFRESHES_MAX: usize = LOOKUP_THREADS_MAX / 2;

/// Above it, a pool is crowded.
pub(super) const WAITING_MAX: usize = 1024;

/// Each call holds its request: 1 MiB at worst.
const WAITING_ALL_MAX: usize = 4096;

/// Some hundred long calls.
const WAITING_LEN_MAX: usize = 512 << 20;

/// Moves of a call between the pools; afterwards it waits for both in one pool.
pub(super) const MOVES_MAX: u8 = 8;

pub(super) const HOST_LOOKUP_WAITING_MAX: usize = 1024;

/// Half of the threads: user names have the others.
pub(super) const HOST_LOOKUPS_MAX: usize = NAMES_THREADS_MAX / 2;

/// A resolver that asks three servers twice, five seconds each.
pub(super) const HOST_LOOKUP_MS_MAX: u64 = 30_000;

pub(super) const WAITING_THREAD_IDLE: Duration = Duration::from_secs(20);

/// After so many reads, the worker serves others.
pub(super) const TURN_READS_MAX: u32 = 16;

pub(super) const CALLBACKS_OUTSTANDING_MAX: usize = 1024;

pub(super) const CALLBACK_CONNECTIONS_MAX: usize = 4096;

pub(super) const CALLBACK_CONNECT_MAX: Duration = Duration::from_secs(3);

pub(super) const CALLBACK_DIALLERS_MAX: usize = 8;
pub(super) const CALLBACKS_WAITING_MAX: usize = 4096;

pub(super) const TICK: Duration = Duration::from_secs(1);

/// Detects a dead client within five minutes. Leases expire earlier.
pub(super) const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
pub(super) const KEEPALIVE_PROBES: u32 = 5;

pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const DESCRIPTORS_RESERVED: usize = 4096;

pub(super) fn connections_max(descriptors: usize) -> usize {
    (descriptors - DESCRIPTORS_RESERVED.min(descriptors / 2)).max(1)
}

/// An open file takes two descriptors, and so does a delegation. A quarter is left for the cache of
/// open files.
pub(super) fn of_engine(descriptors: usize) -> vouch_nfs4_server::Limits {
    let limits = vouch_nfs4_server::Limits::default();
    vouch_nfs4_server::Limits {
        opens_max: limits.opens_max.min(descriptors / 4).max(1),
        delegations_max: limits.delegations_max.min(descriptors / 20),
        ..limits
    }
}

/// Connections of administrators over the network. Each holds some 100 KiB at most without calls.
pub(super) const MANAGEMENT_CONNECTIONS_MAX: usize = 64;
/// A program that manages many servers has one to each.
pub(super) const MANAGEMENT_CONNECTIONS_PER_ADDRESS_MAX: usize = 16;
pub(super) const MANAGEMENT_CONNECTION_CALLS_MAX: u32 = 8;
/// Calls of all administrators whose answers are not sent yet.
pub(super) const MANAGEMENT_CALLS_MAX: usize = 16;
/// Clients of one export may be many.
pub(super) const MANAGEMENT_REQUEST_LEN_MAX: usize = 1 << 20;
/// Libraries of gRPC take messages of 4 MiB.
pub(super) const MANAGEMENT_PART_LEN: usize = 1 << 20;
/// Ends clients that do not read their answers. Others connect again.
pub(super) const MANAGEMENT_AGE_MAX: Duration = Duration::from_secs(600);
/// For calls that are under way at the end of a connection.
pub(super) const MANAGEMENT_DRAIN_MAX: Duration = Duration::from_secs(150);

/// Further clients are counted together.
pub(super) const METRIC_CLIENTS_MAX: usize = 1024;
