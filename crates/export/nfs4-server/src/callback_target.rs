use std::net::SocketAddr;
use std::sync::Arc;

use crate::access::principal::{Flavour, Principal};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallbackId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallbackTo {
    /// Bound to the client's back channel (RFC 8881 §2.10.3.1).
    Connection(ConnectionId),
    /// Of a 4.0 client. The driver connects and keeps the connection (RFC 7530 §16.33).
    Address(SocketAddr),
}

/// Protects callbacks (RFC 8881 §2.10.8.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackContext {
    pub flavour: Flavour,
    pub from_server: Box<[u8]>,
    pub from_client: Box<[u8]>,
}

pub trait CallbackContexts: Send + Sync {
    fn is_usable(&self, from_server: &[u8], principal: &Principal) -> bool;

    fn life(&self, from_server: &[u8]) -> Arc<dyn ContextLife>;
}

/// Read under the state's lock, so it must not block.
pub trait ContextLife: Send + Sync + std::fmt::Debug {
    fn left_ms(&self) -> u64;
}
