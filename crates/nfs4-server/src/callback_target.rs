//! Where callbacks go, and what protects them.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::access::principal::{Flavour, Principal};

/// Identifies a transport connection for as long as the server runs; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Identifies a callback that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallbackId(pub u64);

/// Where a callback goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallbackTo {
    /// Over a connection that a client made and bound to its back channel (RFC 8881, section
    /// 2.10.3.1).
    Connection(ConnectionId),
    /// To the address that a client of 4.0 gave: the driver connects, and keeps the connection for
    /// a while (RFC 7530, section 16.33).
    Address(SocketAddr),
}

/// How a client wants its callbacks protected (RFC 8881, section 2.10.8.3): by a context that it
/// has made with us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackContext {
    /// What is done to bodies: krb5, krb5i or krb5p.
    pub flavour: Flavour,
    /// Our name of the context.
    pub from_server: Box<[u8]>,
    /// The client's name of it, which goes into the credential.
    pub from_client: Box<[u8]>,
}

/// The driver's contexts of RPCSEC_GSS, as far as callbacks go.
pub trait CallbackContexts: Send + Sync {
    /// Whether we have a context of this name that was made by this principal.
    fn is_usable(&self, from_server: &[u8], principal: &Principal) -> bool;

    /// How long the context of this name lasts, of which it is known that it is usable; if it has
    /// ended since, an end that has come.
    fn life(&self, from_server: &[u8]) -> Arc<dyn ContextLife>;
}

/// How long a context lasts. Asked with each call of a session that has its callbacks protected,
/// under the lock of all state: it must not wait.
pub trait ContextLife: Send + Sync + std::fmt::Debug {
    /// Milliseconds that are left; 0 once it has ended, was destroyed or had to make room for
    /// others.
    fn left_ms(&self) -> u64;
}
