//! Only 4.0 (RFC 7530 §16.33, 16.34 and 16.29).

use crate::macros::{wire_failure, wire_struct};
use crate::{ClientId, ClientOwner, NetAddr, Verifier};

wire_struct! {
    #[derive(Copy)]
    pub struct CallbackClient<'a> {
        pub program: u32,
        pub location: NetAddr<'a>,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct SetclientidArgs<'a> {
        pub client: ClientOwner<'a>,
        pub callback: CallbackClient<'a>,
        pub callback_ident: u32,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct SetclientidOk {
        pub client: ClientId,
        pub confirm: Verifier,
    }
}

wire_failure! {
    pub enum SetclientidFailure<'a> {
        CLID_INUSE => InUse(NetAddr<'a>)
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct SetclientidConfirmArgs {
        pub client: ClientId,
        pub confirm: Verifier,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct RenewArgs {
        pub client: ClientId,
    }
}
