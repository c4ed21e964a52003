//! Effects that the driver carries out, in order.

use std::net::IpAddr;
use std::sync::Arc;

use crate::Job;
use crate::access::network::Network;
use crate::callback_target::{CallbackContext, CallbackId, CallbackTo, ConnectionId};
use crate::state::effect::ClientEnd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    Peer,
    /// The RPCSEC_GSS context has ended.
    Context,
}

pub enum Effect {
    /// Send, then call `Server::callback_reply` exactly once, with the RPC reply or with
    /// [`Unreachable`].
    Callback {
        id: CallbackId,
        to: CallbackTo,
        xid: u32,
        record: Vec<u8>,
        context: Option<Arc<CallbackContext>>,
        timeout_ms: u64,
    },
    /// Must be durable before this reply and any later one that is not [`Plain`](crate::ReplyKind).
    Persist {
        key: Vec<u8>,
        value: Vec<u8>,
        order: u64,
    },
    /// Need not be durable at once.
    Forget {
        key: Vec<u8>,
        order: u64,
    },
    /// Remove all recovery records that were not stored again since the start.
    GraceEnded,
    /// For the log: a client came back from another address and may not reclaim.
    AddressMismatch {
        name: Arc<[u8]>,
        address: IpAddr,
        from: Network,
    },
    /// For the log: a holder has not returned a recalled delegation.
    RecallOverdue {
        name: Arc<[u8]>,
        address: IpAddr,
        export: Arc<str>,
        /// The file's identifier, in hexadecimal.
        file: String,
        waited_ms: u64,
        is_revoked: bool,
    },
    /// For the log: a client lost its state or its record, or got none.
    ClientEnded {
        name: Arc<[u8]>,
        address: IpAddr,
        why: ClientEnd,
    },
    /// For the log: another client uses the name, so this one was refused. `holder`: `None` for a
    /// client from before the restart.
    NameConflict {
        name: Arc<[u8]>,
        holder: Option<IpAddr>,
        refused: IpAddr,
        /// The holder has ended, because both have one address.
        has_ended: bool,
    },
    Disconnect(ConnectionId),
    /// Run [`Job::step`] on a thread that may block until the job is done.
    Background(Job),
}

#[derive(Clone, Debug, Default)]
pub struct Recovered {
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
}
