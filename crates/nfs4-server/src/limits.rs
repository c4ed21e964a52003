//! Limits on what peers can make the server store or do, each with its reason.

/// Limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Client records. A record is below 2 KiB: 65,536 of them are 128 MiB.
    pub clients_max: usize,
    /// Sessions of a client. Linux uses one, and a second one while it renews a mount.
    pub sessions_per_client_max: usize,
    /// Slots of a session's fore channel. Linux asks for 64 and grows to 1024; 256 keep one
    /// client's cached replies bounded.
    pub slots_per_session_max: u32,
    /// Cached reply of a slot, bytes: the largest reply to a state-changing compound.
    pub cached_reply_len_max: u32,
    /// Slots and cached replies of all sessions, bytes. A source over its share gets no new
    /// sessions or slots, and calls that need a cached reply get DELAY.
    pub reply_cache_len_max: usize,
    /// Request or reply, bytes: 1 MiB of data and 64 KiB around it.
    pub message_len_max: u32,
    /// Data of one READ or WRITE, bytes.
    pub io_len_max: u32,
    /// Operations in one COMPOUND. Linux sends below 20.
    pub operations_max: u32,
    /// Tag of a COMPOUND, bytes.
    pub tag_len_max: usize,
    pub opens_per_client_max: usize,
    /// Opens in all. Each costs file descriptors. One source (address or proven principal) gets at
    /// most four fifths.
    pub opens_max: usize,
    /// Open owners and lock owners in all, some hundred bytes each, shared by source like opens.
    pub owners_max: usize,
    /// Locked byte ranges of a client, and files with lock owners.
    pub locks_per_client_max: usize,
    pub locks_max: usize,
    pub delegations_max: usize,
    pub copies_per_client_max: usize,
    pub acl_entries_max: usize,
    /// Value of an extended attribute, bytes: Linux's own limit.
    pub xattr_len_max: usize,
    pub copy_step_len_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            clients_max: 65_536,
            sessions_per_client_max: 32,
            slots_per_session_max: 256,
            cached_reply_len_max: 8 * 1024,
            reply_cache_len_max: 512 << 20,
            message_len_max: (1 << 20) + (64 << 10),
            io_len_max: 1 << 20,
            operations_max: 128,
            tag_len_max: 1024,
            opens_per_client_max: 100_000,
            opens_max: 1_000_000,
            owners_max: 1_000_000,
            locks_per_client_max: 100_000,
            locks_max: 4_000_000,
            delegations_max: 100_000,
            copies_per_client_max: 16,
            acl_entries_max: 1024,
            xattr_len_max: 65_536,
            copy_step_len_max: 64 << 20,
        }
    }
}
