//! SETCLIENTID, SETCLIENTID_CONFIRM and RENEW, which only 4.0 has (RFC 7530, sections 16.33, 16.34
//! and 16.29).

use crate::macros::{wire_failure, wire_struct};
use crate::{ClientId, ClientOwner, NetAddr, Verifier};

wire_struct! {
    /// Address of the client's callback program (`cb_client4`).
    #[derive(Copy)]
    pub struct CallbackClient<'a> {
        /// Number of the callback program.
        pub program: u32,
        /// Network address of the client.
        pub location: NetAddr<'a>,
    }
}

wire_struct! {
    /// `SETCLIENTID4args`.
    #[derive(Copy)]
    pub struct SetclientidArgs<'a> {
        /// The client.
        pub client: ClientOwner<'a>,
        /// Address of the client's callback program.
        pub callback: CallbackClient<'a>,
        /// Identifier that callbacks carry.
        pub callback_ident: u32,
    }
}

wire_struct! {
    /// `SETCLIENTID4resok`.
    #[derive(Copy)]
    pub struct SetclientidOk {
        /// Client identifier.
        pub client: ClientId,
        /// Verifier for SETCLIENTID_CONFIRM.
        pub confirm: Verifier,
    }
}

wire_failure! {
    /// Failure of SETCLIENTID.
    pub enum SetclientidFailure<'a> {
        /// Another client uses the name.
        CLID_INUSE => InUse(NetAddr<'a>)
    }
}

wire_struct! {
    /// `SETCLIENTID_CONFIRM4args`.
    #[derive(Copy)]
    pub struct SetclientidConfirmArgs {
        /// Client identifier.
        pub client: ClientId,
        /// Verifier from SETCLIENTID.
        pub confirm: Verifier,
    }
}

wire_struct! {
    /// `RENEW4args`.
    #[derive(Copy)]
    pub struct RenewArgs {
        /// The client.
        pub client: ClientId,
    }
}
