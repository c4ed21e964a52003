use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use mio::{Registry, Token, Waker};
use parking_lot::Mutex;
use vouch_nfs4_server::{CallbackId, ConnectionId};

use crate::transport::connection::Connection;
use crate::transport::output::Outgoing;

pub(crate) struct Inbox {
    messages: Mutex<Vec<Message>>,
    waker: Waker,
}

pub(crate) enum Message {
    Accepted(TcpStream, SocketAddr),
    Connected(TcpStream, SocketAddr, Vec<QueuedCallback>),
    RoomFreed,
    ReplyDurable(Arc<Connection>, Outgoing),
    Check { slot: usize, id: ConnectionId },
}

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

    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "a worker thread cannot be woken");
        }
    }

    pub(crate) fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.messages.lock())
    }
}
