//! Bounds on state that no administrator needs to turn, each with its reason. Those that one may
//! want to turn are in [`crate::Limits`].

/// Of the places for clients, one in so many is for those that have introduced themselves and are
/// not confirmed; and at least so many are.
pub(super) const UNCONFIRMED_SHARE: usize = 8;
/// See [`UNCONFIRMED_SHARE`].
pub(super) const UNCONFIRMED_MIN: usize = 16;
/// Open owners and lock owners of a client, together. Linux makes one open owner a user and a lock
/// owner a process that locks.
pub(super) const OWNERS_PER_CLIENT_MAX: usize = 200_000;
/// Of so many new owners of a client that has as many as it may, one has its idle ones looked for:
/// that takes milliseconds, in which nobody else is served.
pub(super) const OWNERS_LOOK_ROUND: u32 = 1024;
/// Blocking locks of a client that wait. More than a machine has processes that do.
pub(super) const WAITERS_PER_CLIENT_MAX: usize = 4096;
/// Blocking locks that wait for one file: a release looks at those that wait for some of what it
/// frees. One origin gets its share, and one client of that.
pub(super) const WAITERS_PER_FILE_MAX: usize = 512;
/// So many files at least where a client waited for locks are remembered beyond those where it
/// does.
pub(super) const WAITS_FORGOTTEN_MIN: usize = 32;
/// Connections bound to a session. Linux's `nconnect` ends at 16.
pub(super) const CONNECTIONS_PER_SESSION_MAX: usize = 64;
/// Sessions bound to one connection: each is looked at when one ends. Clients make one or two.
pub(super) const SESSIONS_PER_CONNECTION_MAX: usize = 1024;
/// Sessions in all: two a client, where there are as many clients as may be.
pub(super) const SESSIONS_MAX: usize = 131_072;
/// Opens of one file: more than a cluster's nodes have of one library. One origin gets its share,
/// and one client of that.
pub(super) const OPENS_PER_FILE_MAX: usize = 32_768;
/// One source may use so many times what is left of a resource: alone four fifths of it, and less
/// the more others use. A cluster behind one address is served, and leaves a fifth to others.
pub(super) const SHARE_FACTOR: usize = 4;
/// Interval in which eviction scans are counted, milliseconds.
pub(super) const EVICTION_INTERVAL_MS: u64 = 100;
/// Eviction scans of one source in an interval: each frees room for many calls.
pub(super) const EVICTION_SCANS_PER_SOURCE_MAX: u32 = 4;
/// Eviction scans of all sources in an interval. A scan of full tables takes a millisecond.
pub(super) const EVICTION_SCANS_MAX: u32 = 16;
/// Clients with expired leases that one scan ends.
pub(super) const EVICTIONS_PER_SCAN_MAX: usize = 16;
/// Of the kept replies of the origin that has the most, one in so many bytes goes to make room.
pub(super) const REPLIES_SHED_SHARE: usize = 4;
/// An origin that may keep less than one in so many bytes of all beyond what it has gets fewer
/// slots.
pub(super) const REPLY_CACHE_PRESSURE_SHARE: usize = 8;
/// And no new session that may keep less, bytes: a few slots and a reply.
pub(super) const REPLY_CACHE_SESSION_LEN: usize = 16 * 1024;
/// Lock owners of one file: more than a cluster has processes that lock the same one. One origin
/// gets its share, and one client of that.
pub(super) const LOCK_OWNERS_PER_FILE_MAX: usize = 65_536;
/// So many silent clients whose opens or locks are in somebody's way are looked for before they are
/// ended: most often there is one, or one that is not silent is found first.
pub(super) const SILENT_LOOKS_MAX: usize = 64;
/// And of their byte ranges so many are looked at: all that one client has of a file, as a rule.
pub(super) const SILENT_RANGES_MAX: usize = 4096;
/// Delegations of one file: a change of it recalls all of them.
pub(super) const DELEGATIONS_PER_FILE_MAX: usize = 8192;
/// So many opens of a client are looked at to find one that was opened with the caller's rights.
pub(super) const OPENER_LOOKS_MAX: usize = 64;
/// Slots of a back channel that are used: each costs nothing until it is. Linux offers 16.
pub(super) const BACK_SLOTS_MAX: u32 = 16;
/// Callbacks of a client that are queued or under way. Recalls beyond it are not sent, and end by
/// their time.
pub(super) const CALLBACKS_PER_CLIENT_MAX: u32 = 1024;
/// How long a callback may take before it counts as lost, milliseconds.
pub(super) const CALLBACK_TIMEOUT_MS: u64 = 20_000;
/// Slots that a session gets where few replies more may be kept.
pub(super) const SLOTS_UNDER_PRESSURE: u32 = 8;
/// Smallest request and reply that a session can work with, bytes: an RPC header with AUTH_SYS,
/// SEQUENCE and one more.
pub(super) const MESSAGE_LEN_MIN: u32 = 256;
/// Smallest callback message that a back channel can work with, bytes: CB_SEQUENCE and CB_RECALL
/// with a filehandle.
pub(super) const CALLBACK_LEN_MIN: u32 = 512;
/// Files whose recent conflicts and openers are remembered after their state is gone.
pub(super) const RECENT_FILES_MAX: usize = 8192;
/// How long a conflict keeps delegations of a file from being given, milliseconds.
pub(super) const CONFLICT_MEMORY_MS: u64 = 30_000;
/// How long a change without an open keeps others from getting a delegation of the file,
/// milliseconds: longer than such a change is under way.
pub(super) const CHANGE_MEMORY_MS: u64 = 2_000;
/// How long an open makes the next one by the same client a reuse, which a delegation pays for,
/// milliseconds.
pub(super) const REUSE_MEMORY_MS: u64 = 60_000;
/// How long a file's first waiter may take to come for a lock that was freed before the others may
/// have it, milliseconds.
pub(super) const LOCK_RESERVED_MS: u64 = 2_000;
/// How long one that waits for a lock, is told of it and does not come is believed to wait still,
/// milliseconds: twice the time after which Linux asks again by itself.
pub(super) const LOCK_INTEREST_MS: u64 = 60_000;
/// How long attributes that a delegation's holder has told are used, milliseconds.
pub(super) const HOLDER_ATTRIBUTES_MS: u64 = 1_000;
/// Timers that are looked at under one hold of the lock: many clients of one host may be due at
/// once.
pub(super) const TIMERS_AT_ONCE: usize = 256;
/// How long a silent client whose state is in nobody's way keeps it, milliseconds: a day, so that a
/// laptop may sleep over night.
pub(super) const COURTESY_MS: u64 = 24 * 3600 * 1000;
/// How long the end of a copy is remembered that nobody has asked for, milliseconds.
pub(super) const COPY_MEMORY_MS: u64 = 600_000;
/// Reply of an operation that an owner of 4.0 keeps for a retry, bytes: an OPEN with a delegation
/// and its ACE is the longest.
pub(super) const OWNER_REPLY_LEN_MAX: usize = 4096;
/// Longest name of an implementation that is kept for the report, bytes.
pub(super) const IMPLEMENTATION_LEN_MAX: usize = 128;
/// Rows of a kind in one report.
pub(super) const REPORT_ROWS_MAX: usize = 1000;
/// Revoked delegations of a client that it has not freed: with more, it gets no new ones.
pub(super) const REVOKED_PER_CLIENT_MAX: usize = 64;
/// When all delegations but one in so many are given, some are asked for.
pub(super) const RECALL_ANY_ROOM: usize = 8;
/// Of what a client holds, one in so many is asked for.
pub(super) const RECALL_ANY_SHARE: usize = 4;
/// How long nobody is asked again, milliseconds: returning thousands takes a client some seconds.
pub(super) const RECALL_ANY_INTERVAL_MS: u64 = 10_000;
/// How often a callback is sent before it is given up.
pub(super) const CALLBACK_TRIES_MAX: u8 = 5;
/// How long a client that answers DELAY, or does not know yet what it was given, is left alone,
/// milliseconds.
pub(super) const CALLBACK_RETRY_MS: u64 = 500;
