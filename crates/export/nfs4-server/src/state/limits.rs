//! Fixed bounds. Configurable ones are in [`crate::Limits`].

pub(super) const UNCONFIRMED_SHARE: usize = 8;
pub(super) const UNCONFIRMED_MIN: usize = 16;
/// Linux uses an open owner for each user and a lock owner for each locking process.
pub(super) const OWNERS_PER_CLIENT_MAX: usize = 200_000;
/// Refused owners between scans for idle ones: a scan blocks other calls for milliseconds.
pub(super) const OWNER_SCAN_INTERVAL: u32 = 1024;
/// More than the blocked processes of a machine.
pub(super) const WAITERS_PER_CLIENT_MAX: usize = 4096;
/// Each release checks the requests that overlap the freed range.
pub(super) const WAITERS_PER_FILE_MAX: usize = 512;
pub(super) const OBSOLETE_WAITS_MIN: usize = 32;
/// Linux allows up to 16 (`nconnect`).
pub(super) const CONNECTIONS_PER_SESSION_MAX: usize = 64;
pub(super) const SESSIONS_PER_CONNECTION_MAX: usize = 1024;
pub(super) const SESSIONS_MAX: usize = 131_072;
/// More than the nodes that share one library in a cluster. Shared by source and client.
pub(super) const OPENS_PER_FILE_MAX: usize = 32_768;
/// A source may use this multiple of what is free: alone, it gets four fifths.
pub(super) const SHARE_FACTOR: usize = 4;
pub(super) const EVICTION_INTERVAL_MS: u64 = 100;
pub(super) const EVICTION_SCANS_PER_SOURCE_MAX: u32 = 4;
pub(super) const EVICTION_SCANS_MAX: u32 = 16;
pub(super) const EVICTIONS_PER_SCAN_MAX: usize = 16;
pub(super) const REPLIES_SHED_SHARE: usize = 4;
/// A source with less room gets fewer slots.
pub(super) const REPLY_CACHE_PRESSURE_SHARE: usize = 8;
/// Bytes: a few slots and a reply.
pub(super) const REPLY_CACHE_SESSION_LEN: usize = 16 * 1024;
/// More than the locking processes of a cluster. Shared by source and client.
pub(super) const LOCK_OWNERS_PER_FILE_MAX: usize = 65_536;
pub(super) const EXPIRED_SCAN_CLIENTS_MAX: usize = 64;
pub(super) const EXPIRED_SCAN_RANGES_MAX: usize = 4096;
/// A change recalls all of them.
pub(super) const DELEGATIONS_PER_FILE_MAX: usize = 8192;
pub(super) const OPENER_SCAN_MAX: usize = 64;
/// Linux offers 16.
pub(super) const BACK_SLOTS_MAX: u32 = 16;
/// Further recalls are not sent and time out.
pub(super) const CALLBACKS_PER_CLIENT_MAX: u32 = 1024;
pub(super) const CALLBACK_TIMEOUT_MS: u64 = 20_000;
pub(super) const SLOTS_UNDER_PRESSURE: u32 = 8;
/// An RPC header with AUTH_SYS, SEQUENCE and one more operation.
pub(super) const MESSAGE_LEN_MIN: u32 = 256;
/// CB_SEQUENCE and CB_RECALL with a filehandle.
pub(super) const CALLBACK_LEN_MIN: u32 = 512;
pub(super) const RECENT_FILES_MAX: usize = 8192;
pub(super) const CONFLICT_MEMORY_MS: u64 = 30_000;
/// After a change without an open, other clients get no delegation for this time. It is longer than
/// such a change.
pub(super) const CHANGE_MEMORY_MS: u64 = 2_000;
/// A second open by the same client within this time makes a delegation worthwhile.
pub(super) const REUSE_MEMORY_MS: u64 = 60_000;
pub(super) const LOCK_RESERVED_MS: u64 = 2_000;
/// A waiter counts for this time after CB_NOTIFY_LOCK: twice the polling interval of Linux.
pub(super) const LOCK_INTEREST_MS: u64 = 60_000;
pub(super) const HOLDER_ATTRIBUTES_MS: u64 = 1_000;
/// A machine takes longer from its last call to the first one after a restart.
pub(super) const QUICK_RESTART_MS: u64 = 5_000;
pub(super) const TIMERS_AT_ONCE: usize = 256;
/// A laptop may sleep overnight and keep its state without conflicts.
pub(super) const COURTESY_MS: u64 = 24 * 3600 * 1000;
pub(super) const COPY_MEMORY_MS: u64 = 600_000;
/// The longest reply is an OPEN with a delegation and its ACE.
pub(super) const OWNER_REPLY_LEN_MAX: usize = 4096;
pub(super) const IMPLEMENTATION_LEN_MAX: usize = 128;
pub(super) const REPORT_ROWS_MAX: usize = 1000;
/// Of one lock owner on one file, in a list of states.
pub(super) const RANGES_SHOWN_MAX: usize = 64;
/// Above this number, the client gets no new delegations.
pub(super) const REVOKED_PER_CLIENT_MAX: usize = 64;
pub(super) const RECALL_ANY_ROOM: usize = 8;
pub(super) const RECALL_ANY_SHARE: usize = 4;
/// Returning thousands takes seconds.
pub(super) const RECALL_ANY_INTERVAL_MS: u64 = 10_000;
pub(super) const CALLBACK_TRIES_MAX: u8 = 5;
/// After DELAY or an unknown stateid.
pub(super) const CALLBACK_RETRY_MS: u64 = 500;
