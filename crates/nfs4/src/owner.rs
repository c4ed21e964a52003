//! Owners: of clients, of servers, of opens and locks.

use crate::macros::wire_struct;
use crate::{Bytes, ClientId, Verifier};

/// Longest opaque name (RFC 8881, `NFS4_OPAQUE_LIMIT`).
pub const OPAQUE_LIMIT: usize = 1024;

wire_struct! {
    /// An open owner or a lock owner (`state_owner4`).
    #[derive(Copy, Hash)]
    pub struct StateOwner<'a> {
        /// Its client; 4.1 takes it from the session.
        pub client: ClientId,
        /// Its name at the client.
        pub owner: Bytes<'a, OPAQUE_LIMIT>,
    }
}

wire_struct! {
    /// A client, and which life of it (`client_owner4`, `nfs_client_id4`).
    #[derive(Copy, Hash)]
    pub struct ClientOwner<'a> {
        /// Changes when the client restarts.
        pub verifier: Verifier,
        /// Its name.
        pub id: Bytes<'a, OPAQUE_LIMIT>,
    }
}

wire_struct! {
    /// A server, for trunking (`server_owner4`).
    #[derive(Copy, Hash)]
    pub struct ServerOwner<'a> {
        /// Equal where sessions may be trunked.
        pub minor: u64,
        /// Equal where client ids may be.
        pub major: Bytes<'a, OPAQUE_LIMIT>,
    }
}
