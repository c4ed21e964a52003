//! Messages from other threads to a worker.

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

/// A message to a worker.
pub(crate) enum Message {
    /// A client has connected.
    Accepted(TcpStream, SocketAddr),
    /// The server has connected to a callback address, and sends these callbacks.
    Connected(TcpStream, SocketAddr, Vec<QueuedCallback>),
    /// A full quota or pool has room again.
    RoomFreed,
    /// A reply whose records are durable. The worker seals and sends it.
    ReplyDurable(Arc<Connection>, Outgoing),
    /// A connection may have something to do.
    Check {
        /// Its index in the worker.
        slot: usize,
        /// Its id, because the index may have been reused.
        id: ConnectionId,
    },
}

/// A callback that waits for its connection.
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

    /// Adds a message, and wakes the worker if the inbox was empty.
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
            tracing::error!(%error, "a worker thread cannot be woken");
        }
    }

    pub(crate) fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.messages.lock())
    }
}
