//! Who sends a call, and which family of versions a client belongs to.

use std::net::IpAddr;

use crate::{Flavour, Principal};

/// Who sends a call.
#[derive(Clone, Copy, Debug)]
pub struct Credential<'a> {
    /// Who.
    pub principal: &'a Principal,
    /// How that is proven.
    pub flavour: Flavour,
    /// From where.
    pub address: IpAddr,
}

/// The two worlds of client ids: names of one mean nothing in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// SETCLIENTID: 4.0.
    V40,
    /// EXCHANGE_ID: 4.1 and later.
    V41,
}
