use std::net::IpAddr;

use crate::{Flavour, Principal};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Credential<'a> {
    pub principal: &'a Principal,
    pub flavour: Flavour,
    pub address: IpAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    V40,
    V41,
}
