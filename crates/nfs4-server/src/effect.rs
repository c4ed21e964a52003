//! What the server wants done outside: the driver carries effects out, in order.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::state::Network;
use crate::{Flavour, Job, Principal};

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

/// Why a callback has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Its peer can't be reached, or did not answer in time.
    Peer,
    /// It was not sent: the context that was to protect it is no more.
    Context,
}

/// Something to be done outside.
pub enum Effect {
    /// Send a callback; then call [`Server::callback_reply`](crate::Server::callback_reply) exactly
    /// once, with the reply's whole RPC message or with [`Unreachable`].
    Callback {
        /// Names it in the reply.
        id: CallbackId,
        /// Whereto.
        to: CallbackTo,
        /// Transaction id in the message; unique per target among what is outstanding.
        xid: u32,
        /// The RPC call message without record mark. With a context its credential is to be
        /// replaced.
        record: Vec<u8>,
        /// The context of RPCSEC_GSS that protects call and reply: the driver's work.
        context: Option<Arc<CallbackContext>>,
        /// How long to wait for the answer, milliseconds.
        timeout_ms: u64,
    },
    /// Keep this recovery record: it must be durable before the reply that came with it is sent,
    /// and before any later one that [waits for records](crate::Compound::waits_for_records).
    /// Replaces one with the same key.
    Persist {
        /// Key: opaque to the driver.
        key: Vec<u8>,
        /// Value: opaque to the driver.
        value: Vec<u8>,
        /// Grows with each change of records. Calls come to their end in any order: of two changes
        /// under one key the one with the greater number holds.
        order: u64,
    },
    /// Forget the recovery record with this key. Need not be durable at once.
    Forget {
        /// Key.
        key: Vec<u8>,
        /// As above.
        order: u64,
    },
    /// Forget all recovery records that were there at the start and have not been persisted again
    /// since: the grace period is over.
    GraceEnded,
    /// Tell the administrator: a client came back by this name after a restart from elsewhere than
    /// it was, so that it may not reclaim what was held under the name. Whoever can connect
    /// makes as many of these as he likes until grace is over.
    Elsewhere {
        /// The client's name.
        name: Arc<[u8]>,
        /// Where it calls from.
        address: IpAddr,
        /// Where the client of this name called from before.
        from: Network,
    },
    /// Close a connection: its peer broke the protocol in a way that no status can tell, or will
    /// have no answer over it and has to call again over another.
    Disconnect(ConnectionId),
    /// Work to go on with in a thread that may sleep: [`Job::step`] until it is done.
    Background(Job),
}

/// What the recovery store held at the start.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Keys and values as they were persisted.
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
}
