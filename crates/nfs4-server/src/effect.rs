//! Effects that the driver carries out, in order.

use std::net::IpAddr;
use std::sync::Arc;

use crate::Job;
use crate::access::network::Network;
use crate::callback_target::{CallbackContext, CallbackId, CallbackTo, ConnectionId};

/// Why a callback has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The peer cannot be reached, or did not answer in time.
    Peer,
    /// The RPCSEC_GSS context for it has ended, so it was not sent.
    Context,
}

/// An effect.
pub enum Effect {
    /// Send a callback, then call `Server::callback_reply` exactly once, with the reply's RPC
    /// message or with [`Unreachable`].
    Callback {
        /// Number of the callback.
        id: CallbackId,
        /// Target.
        to: CallbackTo,
        /// Transaction id, unique among the outstanding callbacks of a target.
        xid: u32,
        /// The RPC call without record mark. If there is a context, the driver replaces the
        /// credential.
        record: Vec<u8>,
        /// The RPCSEC_GSS context that protects call and reply.
        context: Option<Arc<CallbackContext>>,
        /// Time-out, milliseconds.
        timeout_ms: u64,
    },
    /// Store this recovery record. It must be durable before the reply of this call, and before any
    /// later reply with `Compound::waits_for_records`. It replaces a record with the same key.
    Persist {
        /// Key: opaque to the driver.
        key: Vec<u8>,
        /// Value: opaque to the driver.
        value: Vec<u8>,
        /// Order of changes. Of two changes to one key, the one with the greater number wins.
        order: u64,
    },
    /// Remove the recovery record with this key. It need not be durable at once.
    Forget {
        /// Key.
        key: Vec<u8>,
        /// Order of changes.
        order: u64,
    },
    /// Remove all recovery records from before the start that were not stored again: grace is over.
    GraceEnded,
    /// Log that a client came back under this name from another address, so that it may not
    /// reclaim. Any peer can cause many of these until grace ends.
    AddressMismatch {
        /// The client's name.
        name: Arc<[u8]>,
        /// Its address.
        address: IpAddr,
        /// The network of the client that held the state.
        from: Network,
    },
    /// Close a connection: the peer violated the protocol, or must retry over another connection.
    Disconnect(ConnectionId),
    /// Run [`Job::step`] on a thread that may sleep until the job is done.
    Background(Job),
}

/// Content of the recovery store at the start.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Keys and values as stored.
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
}
