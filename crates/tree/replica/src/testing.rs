//! A replica of one database without sockets, threads and clock, for simulations.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::answer::{Replica, Serving};
use crate::connection::Connection;
use crate::counters::Counters;
use crate::limits::Limits;
use crate::send::{self, SendBuffer, SendError};
use crate::trees::{ServedFile, Tree, Trees};
use crate::wake_queue::{Caller, WakeQueue};

pub struct StreamReplica {
    replica: Replica,
    /// Never used: only caches wait.
    wake_queue: Arc<WakeQueue>,
}

impl StreamReplica {
    /// # Panics
    /// The system has no descriptor for a poll.
    pub fn open(db: &Path) -> vouch_tree_store::Result<Arc<Self>> {
        let trees = Arc::new(Trees::default());
        trees.add(Tree::open(db, None)?).expect("the first tree");
        let waker =
            mio::Poll::new().and_then(|poll| mio::Waker::new(poll.registry(), mio::Token(0)));
        let waker = Arc::new(waker.expect("a descriptor"));
        Ok(Arc::new(Self {
            replica: Replica { trees, statements: None, counters: Arc::new(Counters::default()) },
            wake_queue: Arc::new(WakeQueue { ended: Mutex::default(), waker }),
        }))
    }

    pub fn connect(self: &Arc<Self>, now: Instant) -> StreamConnection {
        StreamConnection {
            replica: Arc::clone(self),
            connection: Connection::new(now),
            buffer: SendBuffer::new(),
        }
    }
}

pub struct StreamConnection {
    replica: Arc<StreamReplica>,
    connection: Connection<ServedFile>,
    buffer: SendBuffer,
}

impl StreamConnection {
    /// The replies to 8 KiB of input at most, and true if the connection stays open.
    pub fn exchange(&mut self, input: &[u8], now: Instant) -> (Vec<u8>, bool) {
        let StreamReplica { replica, wake_queue } = &*self.replica;
        for tree in replica.trees.all() {
            // Damage of packs does not stop the service.
            let _ = tree.refresh();
        }
        let service = Serving { replica, caller: Caller { wake_queue, ticket: (0, 0) } };
        let mut replies = Vec::new();
        let mut fed = self.connection.feed(input, &service);
        loop {
            while !self.connection.output().is_empty() {
                let sent = match send::copied(self.connection.output(), &mut self.buffer) {
                    Ok(bytes) => {
                        replies.extend_from_slice(bytes);
                        bytes.len() as u64
                    }
                    Err(SendError::Peer) => return (replies, false),
                    Err(SendError::File { place, error }) => {
                        replica.trees.note_unreadable(&place, &error);
                        return (replies, false);
                    }
                };
                self.connection.sent(sent);
            }
            if fed.is_err() || self.connection.is_ending() {
                return (replies, false);
            }
            if !self.connection.has_undecoded() {
                self.connection.rest(now);
                return (replies, true);
            }
            fed = self.connection.resume(&service);
        }
    }

    pub fn is_expired(&mut self, now: Instant) -> bool {
        self.connection.expire(now, &Limits::default(), false).is_some()
    }
}
