//! To the callback addresses of 4.0 clients (RFC 7530 §16.33). A thread connects, then a worker
//! owns the connection.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;

use parking_lot::Mutex;
use vouch_nfs4_server::ConnectionId;

use crate::limits::{CALLBACK_DIALLERS_MAX, CALLBACKS_WAITING_MAX};
use crate::thread_pool::Pool;
use crate::transport::inbox::QueuedCallback;

pub(crate) struct CallbackDialers {
    pub(crate) pool: Pool,
    pub(crate) targets: Mutex<HashMap<SocketAddr, Target>>,
}

pub(crate) enum Target {
    Connecting(Vec<QueuedCallback>),
    Connected(ConnectionId),
}

impl CallbackDialers {
    pub(crate) fn new() -> Self {
        CallbackDialers {
            pool: Pool::new("callback-dial", CALLBACK_DIALLERS_MAX, CALLBACKS_WAITING_MAX, || ()),
            targets: Mutex::default(),
        }
    }

    pub(crate) fn connected(&self, address: SocketAddr, id: ConnectionId) -> Vec<QueuedCallback> {
        match self.targets.lock().insert(address, Target::Connected(id)) {
            Some(Target::Connecting(queue)) => queue,
            _ => Vec::new(),
        }
    }

    pub(crate) fn closed(&self, address: SocketAddr, id: ConnectionId) {
        if let Entry::Occupied(entry) = self.targets.lock().entry(address)
            && matches!(entry.get(), Target::Connected(connected) if *connected == id)
        {
            entry.remove();
        }
    }

    pub(crate) fn stop(&self) {
        self.pool.stop();
    }
}
