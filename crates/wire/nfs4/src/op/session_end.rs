//! DESTROY_SESSION, DESTROY_CLIENTID and RECLAIM_COMPLETE (RFC 8881 §18.37, 18.50 and 18.51).

use crate::macros::wire_struct;
use crate::{ClientId, SessionId};

wire_struct! {
    #[derive(Copy)]
    pub struct DestroySessionArgs {
        pub session: SessionId,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct DestroyClientidArgs {
        pub client: ClientId,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct ReclaimCompleteArgs {
        pub one_fs: bool,
    }
}
