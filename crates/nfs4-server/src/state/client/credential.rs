//! Credentials of a call, and the two families of client ids.

use std::net::IpAddr;

use crate::{Flavour, Principal};

/// The credential of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credential<'a> {
    /// Principal of the caller.
    pub principal: &'a Principal,
    /// RPC flavour that authenticates the principal.
    pub flavour: Flavour,
    /// Source address.
    pub address: IpAddr,
}

/// Families of client ids. The same name in both families belongs to two different clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// SETCLIENTID: 4.0.
    V40,
    /// EXCHANGE_ID: 4.1 and later.
    V41,
}
