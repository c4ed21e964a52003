//! DESTROY_SESSION, DESTROY_CLIENTID and RECLAIM_COMPLETE (RFC 8881, sections 18.37, 18.50 and
//! 18.51).

use crate::macros::wire_struct;
use crate::{ClientId, SessionId};

wire_struct! {
    #[derive(Copy)]
    pub struct DestroySessionArgs {
        /// The session.
        pub session: SessionId,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct DestroyClientidArgs {
        /// The client.
        pub client: ClientId,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct ReclaimCompleteArgs {
        /// Whether the reclaims end only for the current file system.
        pub one_fs: bool,
    }
}
