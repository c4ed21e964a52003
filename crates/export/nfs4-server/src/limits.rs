#[derive(Clone, Debug)]
pub struct Limits {
    /// A record is below 2 KiB: 65,536 of them are 128 MiB.
    pub clients_max: usize,
    /// Linux uses one, and a second one during renewal of a mount.
    pub sessions_per_client_max: usize,
    /// Linux asks for 64 and grows to 1024; 256 bound one client's cached replies.
    pub slots_per_session_max: u32,
    /// Bytes: the largest reply to a state-changing compound.
    pub cached_reply_len_max: u32,
    /// Slots and cached replies of all sessions, bytes. A source over its share gets no new
    /// sessions or slots, and DELAY for calls that need a cached reply.
    pub reply_cache_len_max: usize,
    /// 1 MiB of data and 64 KiB around it.
    pub message_len_max: u32,
    pub io_len_max: u32,
    /// Linux sends below 20.
    pub operations_max: u32,
    pub tag_len_max: usize,
    pub opens_per_client_max: usize,
    /// Each costs file descriptors. One source (address or proven principal) gets at most four
    /// fifths.
    pub opens_max: usize,
    /// Open and lock owners, some hundred bytes each, shared by source like opens.
    pub owners_max: usize,
    pub locks_per_client_max: usize,
    pub locks_max: usize,
    /// Of files. Each holds the file open.
    pub delegations_max: usize,
    /// Each pins an inode of the kernel if local changes are watched.
    pub directory_delegations_max: usize,
    pub copies_per_client_max: usize,
    pub acl_entries_max: usize,
    /// Bytes: Linux's own limit.
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
            directory_delegations_max: 50_000,
            copies_per_client_max: 16,
            acl_entries_max: 1024,
            xattr_len_max: 65_536,
            copy_step_len_max: 64 << 20,
        }
    }
}

/// Bytes of a file for which one layout is granted: a client reads the next part from another
/// server. Long enough that a LAYOUTGET costs little beside the READs.
pub(crate) const LAYOUT_LEN: u32 = 4 << 20;
