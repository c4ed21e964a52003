//! Every bound on what peers can make the server hold or do, each with its reason.

/// Bounds.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Clients with state. A record is below 2 KiB: 64 Ki of them are 128 MiB.
    pub clients_max: usize,
    /// Sessions of a client. Linux uses one; a second one lives while a mount is renewed.
    pub sessions_per_client_max: usize,
    /// Slots of a session's fore channel. Linux asks for 64 and grows to 1024; 256 keep one
    /// client's cached replies bounded.
    pub slots_per_session_max: u32,
    /// Cached reply of a slot, bytes: the largest reply to a state-changing compound that clients
    /// send.
    pub cached_reply_len_max: u32,
    /// Slots and cached replies in all, bytes: never more. An origin that has its share gets no new
    /// sessions nor more slots, and its calls whose replies would have to be kept wait.
    pub reply_cache_len_max: usize,
    /// Request or reply, bytes: 1 MiB of data and 64 KiB around it.
    pub message_len_max: u32,
    /// Data of one READ or WRITE, bytes.
    pub io_len_max: u32,
    /// Operations in one COMPOUND. Linux sends below 20.
    pub operations_max: u32,
    /// Tag of a COMPOUND, bytes.
    pub tag_len_max: usize,
    /// Opens of a client.
    pub opens_per_client_max: usize,
    /// Opens in all: each costs the file system descriptors. One origin (an address, or a proven
    /// principal) gets at most four fifths of them, and fewer the more others have, so
    /// that there is always room for one that has few.
    pub opens_max: usize,
    /// Open owners and lock owners in all, some hundred bytes each. One origin gets a share of what
    /// is left, as of opens.
    pub owners_max: usize,
    /// Byte-range locks of a client; and files with lock owners, which stay known when nothing is
    /// locked any more.
    pub locks_per_client_max: usize,
    /// Both in all, some hundred bytes each. One origin gets a share of what is left, as of opens.
    pub locks_max: usize,
    /// Delegations outstanding in all.
    pub delegations_max: usize,
    /// Asynchronous copies of a client at once.
    pub copies_per_client_max: usize,
    /// ACL entries in one attribute.
    pub acl_entries_max: usize,
    /// Value of an extended attribute, bytes: Linux's own limit.
    pub xattr_len_max: usize,
    /// Bytes that a synchronous COPY or an ALLOCATE works on before it answers short or hands over.
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
