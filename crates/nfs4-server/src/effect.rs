//! What the server wants done outside: the driver carries effects out, in order.

use std::net::IpAddr;
use std::sync::Arc;

use crate::Job;
use crate::access::network::Network;
use crate::callback_target::{CallbackContext, CallbackId, CallbackTo, ConnectionId};

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
    /// Send a callback; then call `Server::callback_reply` exactly
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
    /// and before any later one that waits for records (`Compound::waits_for_records`).
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
