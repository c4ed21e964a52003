use crate::macros::wire_struct;
use crate::{Bytes, ClientId, Verifier};

/// RFC 8881, `NFS4_OPAQUE_LIMIT`.
pub const OPAQUE_LIMIT: usize = 1024;

wire_struct! {
    /// `state_owner4`.
    #[derive(Copy, Hash)]
    pub struct StateOwner<'a> {
        /// A 4.1 server takes it from the session.
        pub client: ClientId,
        pub owner: Bytes<'a, OPAQUE_LIMIT>,
    }

    #[derive(Copy, Hash)]
    pub struct ClientOwner<'a> { pub verifier: Verifier, pub id: Bytes<'a, OPAQUE_LIMIT> }

    #[derive(Copy, Hash)]
    pub struct ServerOwner<'a> { pub minor: u64, pub major: Bytes<'a, OPAQUE_LIMIT> }
}
