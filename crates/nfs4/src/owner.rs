//! Owners of clients, servers, opens and locks.

use crate::macros::wire_struct;
use crate::{Bytes, ClientId, Verifier};

/// Maximum length of an opaque name (RFC 8881, `NFS4_OPAQUE_LIMIT`).
pub const OPAQUE_LIMIT: usize = 1024;

wire_struct! {
    /// An open owner or a lock owner (`state_owner4`).
    #[derive(Copy, Hash)]
    pub struct StateOwner<'a> {
        /// The client. A 4.1 server takes it from the session instead.
        pub client: ClientId,
        /// Name of the owner at the client.
        pub owner: Bytes<'a, OPAQUE_LIMIT>,
    }
}

wire_struct! {
    /// A client and its instance (`client_owner4`, `nfs_client_id4`).
    #[derive(Copy, Hash)]
    pub struct ClientOwner<'a> {
        /// Verifier of the instance: changes when the client restarts.
        pub verifier: Verifier,
        /// Name of the client.
        pub id: Bytes<'a, OPAQUE_LIMIT>,
    }
}

wire_struct! {
    /// Owner of a server, for trunking (`server_owner4`).
    #[derive(Copy, Hash)]
    pub struct ServerOwner<'a> {
        /// Connections to servers with equal minor and major identifiers may share a session.
        pub minor: u64,
        /// Connections to servers with equal major identifiers may share a client identifier.
        pub major: Bytes<'a, OPAQUE_LIMIT>,
    }
}
