use std::net::IpAddr;
use std::sync::Arc;

use crate::{Connection, Flavour, Principal};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Credential<'a> {
    pub principal: &'a Principal,
    pub flavour: Flavour,
    pub address: IpAddr,
    /// Name of the machine's certificate.
    pub machine: Option<&'a str>,
}

impl<'a> Credential<'a> {
    pub(crate) fn new(
        principal: &'a Principal,
        flavour: Flavour,
        connection: &'a Connection,
    ) -> Self {
        Credential {
            principal,
            flavour,
            address: connection.peer().ip(),
            machine: connection.machine(),
        }
    }

    /// AUTH_SYS of a machine with a certificate is as good as that certificate.
    pub(in crate::state) fn machine_of_sys(&self) -> Option<Arc<str>> {
        self.machine.filter(|_| matches!(self.principal, Principal::Sys { .. })).map(Arc::from)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    V40,
    V41,
}
