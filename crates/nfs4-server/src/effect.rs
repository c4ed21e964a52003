//! Effects that the driver carries out, in order.

use std::net::IpAddr;
use std::sync::Arc;

use crate::Job;
use crate::access::network::Network;
use crate::callback_target::{CallbackContext, CallbackId, CallbackTo, ConnectionId};

/// The reason for a missing answer to a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Not reachable, or no answer in time.
    Peer,
    /// Not sent, because the RPCSEC_GSS context has ended.
    Context,
}

pub enum Effect {
    /// Send this, then call `Server::callback_reply` exactly once, with the reply's RPC message or
    /// with [`Unreachable`].
    Callback {
        id: CallbackId,
        to: CallbackTo,
        xid: u32,
        /// The RPC call without record mark. With a context, the driver replaces the credential.
        record: Vec<u8>,
        context: Option<Arc<CallbackContext>>,
        timeout_ms: u64,
    },
    /// Must be durable before the reply of this call, and before any later reply with
    /// `Compound::waits_for_records`. Replaces a record with the same key.
    Persist {
        key: Vec<u8>,
        value: Vec<u8>,
        /// Of two changes to one key, the one with the greater number wins.
        order: u64,
    },
    /// Need not be durable at once.
    Forget { key: Vec<u8>, order: u64 },
    /// Remove all recovery records from before the start that were not stored again: grace is over.
    GraceEnded,
    /// Log that a client with this name came back from another address, so that it may not reclaim.
    /// Any peer can cause many of these until grace ends.
    AddressMismatch { name: Arc<[u8]>, address: IpAddr, from: Network },
    /// The peer violated the protocol, or must retry over another connection.
    Disconnect(ConnectionId),
    /// Run [`Job::step`] on a thread that may block until the job is done.
    Background(Job),
}

/// Content of the recovery store at the start.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
}
