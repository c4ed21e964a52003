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
        id: CallbackId,
        to: CallbackTo,
        xid: u32,
        /// The RPC call without record mark. If there is a context, the driver replaces the
        /// credential.
        record: Vec<u8>,
        context: Option<Arc<CallbackContext>>,
        timeout_ms: u64,
    },
    /// Store this recovery record. It must be durable before the reply of this call, and before any
    /// later reply with `Compound::waits_for_records`. It replaces a record with the same key.
    Persist {
        key: Vec<u8>,
        value: Vec<u8>,
        /// Order of changes. Of two changes to one key, the one with the greater number wins.
        order: u64,
    },
    /// Remove the recovery record with this key. It need not be durable at once.
    Forget { key: Vec<u8>, order: u64 },
    /// Remove all recovery records from before the start that were not stored again: grace is over.
    GraceEnded,
    /// Log that a client came back under this name from another address, so that it may not
    /// reclaim. Any peer can cause many of these until grace ends.
    AddressMismatch { name: Arc<[u8]>, address: IpAddr, from: Network },
    /// Close a connection: the peer violated the protocol, or must retry over another connection.
    Disconnect(ConnectionId),
    /// Run [`Job::step`] on a thread that may sleep until the job is done.
    Background(Job),
}

/// Content of the recovery store at the start.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
}
