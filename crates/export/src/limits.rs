//! Every limit of the export driver, with its reason. What a user may set is in [`Limits`]; the
//! rest is fixed here. Limits of the protocol's state are in `vouch_nfs4_server::Limits`.

use std::time::Duration;

/// What a user may set.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once, over all threads. Each costs a file descriptor and some hundred bytes
    /// when idle. Lowered to what the process may open.
    pub connections_max: usize,
    /// Connections of one address (of a /64 of IPv6) at once, and no more than four times what is
    /// left for all: one client must not take all places. `nconnect` asks for 16 at most; many
    /// clients may share an address behind NAT.
    pub connections_per_address_max: usize,
    /// A peer that has begun a request must end it within this, and one that owes us reading must
    /// take something within it: else sleepers could hold memory for ever.
    pub stall_max: Duration,
    /// Threads for what has to wait for a disk or a network.
    pub waiting_threads_max: usize,
    /// Calls that may wait at once, over all; one address gets its share.
    pub waiting_calls_max: usize,
    /// Bytes of calls that may wait at once, over all; one address gets its share.
    pub waiting_len_max: usize,
    /// After the signal to stop, time for replies under way.
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

/// Bytes taken from a socket by one read where no long record is under way: some hundred small
/// calls, or the head of a long one.
pub(super) const READ_LEN: usize = 64 * 1024;

/// A call of this length is worth having others checked beside it: copying it from the socket is a
/// tenth of what checking it costs. Where the CPU takes sixteen long messages side
/// by side ([`long_wraps`](vouch_rpcsec_gss::long_wraps)), a lone one leaves so much of it idle
/// that a page is worth it.
pub(super) const fn batch_len_min(lanes: usize) -> usize {
    if lanes >= 16 { 4 * 1024 } else { 64 * 1024 }
}

/// What a connection keeps of an incomplete record is copied out of the thread's receive buffer up
/// to this length; a longer piece keeps the buffer itself. Less than one read, so that a long WRITE
/// whose head was read with one stays where it is.
pub(super) const HELD_COPY_LEN_MAX: usize = 16 * 1024;

/// Memory for calls that have not come whole, over all connections: some hundred long ones at once.
/// Beyond it, and beyond its share, an address gets no more than [`READ_LEN_SHORT`] of a call taken
/// in before others have come to their end.
pub(super) const HELD_LEN_MAX: usize = 512 << 20;

/// Bytes taken from a socket by one read where there is no room to keep what is not whole: a small
/// call.
pub(super) const READ_LEN_SHORT: usize = 4096;

/// One address may have so many times what is left for all: of calls that wait, of memory for calls
/// that have not come whole, of connections that wait for their host's name. One that is alone gets
/// four fifths.
pub(super) const SHARE: usize = 4;

/// Receive buffers that a thread keeps for later, at least; and more than those of the calls that
/// are checked together.
pub(super) const SPARE_BUFFERS_MAX: usize = 4;

/// Reply buffers that a thread keeps for later, and the longest that is kept: replies of READ with
/// their data in memory are below it.
pub(super) const SPARE_REPLIES_MAX: usize = 256;
pub(super) const SPARE_REPLY_LEN_MAX: usize = 80 * 1024;

/// Buffers of long replies that a thread keeps: those of READs under privacy, whose data must lie
/// in memory to be sealed. A reply is a little over a megabyte; what has grown to more by its
/// growth's step is kept too.
pub(super) const SPARE_LONG_REPLIES_MAX: usize = 32;
pub(super) const SPARE_LONG_REPLY_LEN_MAX: usize = 2 << 20;

/// BlockedCharge that a new reply buffer has: most replies of metadata operations and of 4 KiB reads fit.
pub(super) const REPLY_LEN_START: usize = 1024;

/// No further call of a connection is taken up while this many bytes of its replies wait in memory.
pub(super) const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// No further call is taken up while this much of files waits to be sent to it; nothing of it lies
/// in our memory. A Linux client has 64 READs of a megabyte in flight.
pub(super) const OUTPUT_SPANS_MAX: u64 = 128 << 20;

/// No further call is taken up while this many replies wait.
pub(super) const OUTPUT_REPLIES_MAX: usize = 1024;

/// Replies gathered before the socket gets them although more calls wait in the same batch: the
/// client's work should overlap with ours.
pub(super) const FLUSH_LEN: usize = 64 * 1024;

/// When half of the calls that came together are done and so many replies wait, it is looked
/// whether their client waits for them too: half the widest vectors' lanes, in which a
/// message costs little more.
pub(super) const SEND_SOON_COUNT: usize = 8;
/// Where those that are to be sealed are longer nobody looks.
pub(super) const SEND_SOON_LEN_MAX: usize = 256 * 1024;

/// Replies that are sealed together at most: enough for the lanes of the widest vectors several
/// times over, and little enough that the client has work while we seal.
pub(super) const SEAL_COUNT_MAX: usize = 64;
/// Of each of the messages that fill the lanes ([`long_wraps`](vouch_rpcsec_gss::long_wraps)): a
/// READ's reply is a little longer.
pub(super) const SEAL_LEN_EACH_MAX: usize = 1 << 20;

/// Pieces handed to the socket by one system call.
pub(super) const SEND_PIECES_MAX: usize = 64;

/// Calls of one connection that may wait for disks at once: a session's slots.
pub(super) const WAITING_PER_CONNECTION_MAX: usize = 256;

/// Arguments of a call that has to wait are copied up to this length: in place they would keep a
/// receive buffer of a megabyte from being used again.
pub(super) const WAITING_COPY_LEN_MAX: usize = 128 * 1024;

/// Threads that may wait for the name service, for hosts or for users: each costs little, and a
/// server that does not answer keeps one for some seconds.
pub(super) const NAMES_THREADS_MAX: usize = 32;

/// Calls that may wait for a thread, for disks or for names, before no more are taken up of those
/// connections that have some among them.
pub(super) const WAITING_MAX: usize = 1024;

/// Calls of all that may wait, one that a thread is at among them; of each address no more than its
/// [`SHARE`]. Each holds its request: a megabyte at worst.
const WAITING_ALL_MAX: usize = 4096;

/// Memory of those: some hundred long ones.
const WAITING_LEN_MAX: usize = 512 << 20;

/// How often a call may change between the threads for disks and those for names before it waits
/// for both where it is.
pub(super) const MOVES_MAX: u8 = 8;

/// Connections that may wait for the name of their host, over all.
pub(super) const HOST_LOOKUP_WAITING_MAX: usize = 1024;

/// Names of hosts that are looked for at once: half of the threads, so that users' names have the
/// others.
pub(super) const HOST_LOOKUPS_MAX: usize = NAMES_THREADS_MAX / 2;

/// How long a connection waits for the name of its host, milliseconds: as long as a resolver takes
/// that asks three servers twice, with time-outs of five seconds.
pub(super) const HOST_LOOKUP_MS_MAX: u64 = 30_000;

/// A waiting thread without work ends after this.
pub(super) const WAITING_THREAD_IDLE: Duration = Duration::from_secs(20);

/// Reads of a connection before the thread's others have their turn.
pub(super) const TURN_READS_MAX: u32 = 16;

/// Accepted connections handed to a thread that it has not looked at yet.
pub(super) const CALLBACKS_OUTSTANDING_MAX: usize = 1024;

/// Connections to clients of 4.0 for callbacks, over all.
pub(super) const CALLBACK_CONNECTIONS_MAX: usize = 4096;

/// Time for a connection to a client's callback address.
pub(super) const CALLBACK_CONNECT_MAX: Duration = Duration::from_secs(3);

/// Threads that connect to callback addresses; and how many addresses may wait for them.
pub(super) const CALLBACK_DIALLERS_MAX: usize = 8;
/// Callbacks that wait for a connection.
pub(super) const CALLBACKS_WAITING_MAX: usize = 4096;

/// How often time-outs are looked for.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// Keepalive: a client's machine that is gone is noticed within five minutes; leases notice it
/// earlier, this frees the descriptor.
pub(super) const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
pub(super) const KEEPALIVE_PROBES: u32 = 5;

/// Pause after the system refuses another connection.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Descriptors kept back from connections: open files of clients come out of the same limit.
const DESCRIPTORS_RESERVED: usize = 4096;

/// Connections at once of a process that may have so many descriptors.
pub(super) fn connections_max(descriptors: usize) -> usize {
    (descriptors - DESCRIPTORS_RESERVED.min(descriptors / 2)).max(1)
}

/// The engine's limits in such a process. An open file takes two descriptors, and so does one under
/// a delegation; a quarter of all is kept for files lately used.
pub(super) fn of_engine(descriptors: usize) -> vouch_nfs4_server::Limits {
    let limits = vouch_nfs4_server::Limits::default();
    vouch_nfs4_server::Limits {
        opens_max: limits.opens_max.min(descriptors / 4).max(1),
        delegations_max: limits.delegations_max.min(descriptors / 20),
        ..limits
    }
}

/// Clients and other labels that metrics tell apart; what is beyond is counted together.
pub(super) const METRIC_CLIENTS_MAX: usize = 1024;
