//! SETCLIENTID, SETCLIENTID_CONFIRM and RENEW, of 4.0 alone (RFC 7530, sections 16.33, 16.34 and
//! 16.29).

use crate::macros::{wire_failure, wire_struct};
use crate::{ClientId, ClientOwner, NetAddr, Verifier};

wire_struct! {
    /// Where callbacks go (`cb_client4`).
    #[derive(Copy)]
    pub struct CallbackClient<'a> {
        /// The program there.
        pub program: u32,
        /// The address.
        pub location: NetAddr<'a>,
    }
}

wire_struct! {
    /// `SETCLIENTID4args`.
    #[derive(Copy)]
    pub struct SetclientidArgs<'a> {
        /// The client.
        pub client: ClientOwner<'a>,
        /// Where callbacks go.
        pub callback: CallbackClient<'a>,
        /// What they carry.
        pub callback_ident: u32,
    }
}

wire_struct! {
    /// `SETCLIENTID4resok`.
    #[derive(Copy)]
    pub struct SetclientidOk {
        /// The client's number.
        pub client: ClientId,
        /// What confirms it.
        pub confirm: Verifier,
    }
}

wire_failure! {
    /// How SETCLIENTID fails.
    pub enum SetclientidFailure<'a> {
        /// Another uses the name.
        CLID_INUSE => InUse(NetAddr<'a>)
    }
}

wire_struct! {
    /// `SETCLIENTID_CONFIRM4args`.
    #[derive(Copy)]
    pub struct SetclientidConfirmArgs {
        /// The client's number.
        pub client: ClientId,
        /// What confirms it.
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
