//! Connections that we make: to the callback addresses of 4.0 clients (RFC 7530, section 16.33).
//! Connecting may take long, so it has threads of its own; once connected, a worker owns the
//! connection like any other. One connection an address, for as long as it lasts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_nfs4_server::ConnectionId;

use super::driver::Driver;
use super::inbox::{Message, QueuedCallback};
use super::limits::{
    CALLBACK_CONNECT_MAX, CALLBACK_CONNECTIONS_MAX, CALLBACK_DIALLERS_MAX, CALLBACKS_OUTSTANDING_MAX, CALLBACKS_WAITING_MAX,
};
use super::pool::{Origin, Pool};

/// The threads that connect, and what they have connected.
pub(super) struct Diallers {
    pool: Pool,
    targets: Mutex<HashMap<SocketAddr, Target>>,
}

enum Target {
    /// A thread is at it; these are sent when it succeeds.
    Connecting(Vec<QueuedCallback>),
    Connected(ConnectionId),
}

impl Diallers {
    pub(super) fn new() -> Self {
        Diallers { pool: Pool::new("callback-dial", CALLBACK_DIALLERS_MAX, CALLBACKS_WAITING_MAX, || ()), targets: Mutex::default() }
    }

    /// Sends a callback to an address, over the connection that there is or over a new one.
    pub(super) fn call_back(&self, driver: &Arc<Driver>, address: SocketAddr, callback: QueuedCallback) {
        let mut targets = self.targets.lock();
        let count = targets.len();
        match targets.entry(address) {
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Target::Connecting(queue) if queue.len() < CALLBACKS_OUTSTANDING_MAX => queue.push(callback),
                Target::Connecting(_) => {
                    drop(targets);
                    driver.unanswered([callback.id]);
                }
                Target::Connected(id) => {
                    let connection = driver.connection(*id);
                    drop(targets);
                    let id = callback.id;
                    if !connection.is_some_and(|connection| connection.call_back(id, callback.xid, callback.record, callback.due_ms)) {
                        driver.unanswered([id]);
                    }
                }
            },
            Entry::Vacant(_) if count >= CALLBACK_CONNECTIONS_MAX || self.pool.is_crowded(Origin::call(address.ip())) => {
                drop(targets);
                driver.unanswered([callback.id]);
            }
            Entry::Vacant(entry) => {
                entry.insert(Target::Connecting(vec![callback]));
                drop(targets);
                let driver = driver.clone();
                self.pool.submit(Origin::call(address.ip()), move || driver.diallers.connect(&driver, address));
            }
        }
    }

    fn connect(&self, driver: &Arc<Driver>, address: SocketAddr) {
        let socket = TcpStream::connect_timeout(&address, CALLBACK_CONNECT_MAX).and_then(|socket| {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            Ok(socket)
        });
        match socket {
            Ok(socket) => {
                let queue = match self.targets.lock().get_mut(&address) {
                    Some(Target::Connecting(queue)) => std::mem::take(queue),
                    _ => Vec::new(),
                };
                let inbox = &driver.inboxes[usize::from(address.port()) % driver.inboxes.len()];
                inbox.post(Message::Connected(socket, address, queue));
            }
            Err(error) => {
                tracing::debug!(%address, %error, "a client's callback address can't be reached");
                if let Some(Target::Connecting(queue)) = self.targets.lock().remove(&address) {
                    driver.unanswered(queue.into_iter().map(|callback| callback.id));
                }
            }
        }
    }

    /// A worker has the connection: what has come meanwhile is given back, to be sent now.
    pub(super) fn connected(&self, address: SocketAddr, id: ConnectionId) -> Vec<QueuedCallback> {
        match self.targets.lock().insert(address, Target::Connected(id)) {
            Some(Target::Connecting(queue)) => queue,
            _ => Vec::new(),
        }
    }

    /// A connection that we made is gone.
    pub(super) fn closed(&self, address: SocketAddr, id: ConnectionId) {
        if let Entry::Occupied(entry) = self.targets.lock().entry(address)
            && matches!(entry.get(), Target::Connected(connected) if *connected == id)
        {
            entry.remove();
        }
    }

    /// Connects no more.
    pub(super) fn stop(&self) {
        self.pool.stop();
    }
}
