//! What other threads have for a worker: new connections, and connections to look at.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use mio::{Registry, Token, Waker};
use parking_lot::Mutex;
use vouch_nfs4_server::{CallbackId, ConnectionId};

use crate::transport::connection::Connection;
use crate::transport::output::Outgoing;

/// A worker's inbox.
pub(crate) struct Inbox {
    messages: Mutex<Vec<Message>>,
    waker: Waker,
}

/// News for a worker.
pub(crate) enum Message {
    /// A client has connected.
    Accepted(TcpStream, SocketAddr),
    /// We have connected to a client's callback address, to send these.
    Connected(TcpStream, SocketAddr, Vec<QueuedCallback>),
    /// What waited for the pool may be taken up.
    RoomFreed,
    /// A reply that has waited for records and may leave, once it is sealed.
    ReplyDurable(Arc<Connection>, Outgoing),
    /// The connection in this slot, if it is still this one, may have something to do.
    Check {
        /// Its place in the worker.
        slot: usize,
        /// Which connection it was.
        id: ConnectionId,
    },
}

/// A callback that waits for a connection.
pub(crate) struct QueuedCallback {
    pub(crate) id: CallbackId,
    pub(crate) xid: u32,
    pub(crate) record: Outgoing,
    pub(crate) due_ms: u64,
}

impl Inbox {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Inbox { messages: Mutex::default(), waker: Waker::new(registry, token)? })
    }

    /// Leaves a message and wakes the worker, unless it has been woken already.
    pub(crate) fn post(&self, message: Message) {
        let first = {
            let mut messages = self.messages.lock();
            messages.push(message);
            messages.len() == 1
        };
        if first {
            self.wake();
        }
    }

    /// Wakes the worker.
    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "a serving thread can't be woken");
        }
    }

    /// All messages.
    pub(crate) fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.messages.lock())
    }
}
