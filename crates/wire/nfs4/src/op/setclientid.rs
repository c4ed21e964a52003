//! Only 4.0 (RFC 7530 §16.33, 16.34 and 16.29).

use crate::macros::{wire_copy, wire_failure};
use crate::{ClientId, ClientOwner, NetAddr, Verifier};

wire_copy! {
    pub struct CallbackClient<'a> { pub program: u32, pub location: NetAddr<'a> }

    pub struct SetclientidArgs<'a> {
        pub client: ClientOwner<'a>,
        pub callback: CallbackClient<'a>,
        pub callback_ident: u32,
    }

    pub struct SetclientidOk { pub client: ClientId, pub confirm: Verifier }
}

wire_failure! {
    pub enum SetclientidFailure<'a> {
        CLID_INUSE => InUse(NetAddr<'a>)
    }
}

wire_copy! {
    pub struct SetclientidConfirmArgs { pub client: ClientId, pub confirm: Verifier }
    pub struct RenewArgs { pub client: ClientId }
}
