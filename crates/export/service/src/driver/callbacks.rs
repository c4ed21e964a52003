//! Callbacks on the client's connection, or on one to a 4.0 client (RFC 7530 §16.33).

use std::collections::hash_map::Entry;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use vouch_audit::record::Refusal;
use vouch_nfs4_server::{CallbackId, CallbackTo, Unreachable};

use super::state::Driver;
use crate::audit::Refused;
use crate::clock;
use crate::gss::Answered;
use crate::limits::{CALLBACK_CONNECT_MAX, CALLBACK_CONNECTIONS_MAX, CALLBACKS_OUTSTANDING_MAX};
use crate::thread_pool::TaskOrigin;
use crate::transport::callback_dialer::Target;
use crate::transport::connection::Connection;
use crate::transport::inbox::{Message, QueuedCallback};

impl Driver {
    pub(super) fn call_back(self: &Arc<Self>, to: CallbackTo, callback: QueuedCallback) {
        self.traffic.callbacks.add(1);
        match to {
            CallbackTo::Connection(id) => {
                let callback_id = callback.id;
                let sent = self.connection(id).is_some_and(|connection| {
                    connection.call_back(
                        callback.id,
                        callback.xid,
                        callback.record,
                        callback.due_ms,
                    )
                });
                if !sent {
                    self.unanswered([callback_id]);
                }
            }
            CallbackTo::Address(address) => self.call_back_by_address(address, callback),
        }
    }

    fn call_back_by_address(self: &Arc<Self>, address: SocketAddr, callback: QueuedCallback) {
        let mut targets = self.callback_dialers.targets.lock();
        let count = targets.len();
        match targets.entry(address) {
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Target::Connecting(queue) if queue.len() < CALLBACKS_OUTSTANDING_MAX => {
                    queue.push(callback)
                }
                Target::Connecting(_) => {
                    drop(targets);
                    self.unanswered([callback.id]);
                }
                Target::Connected(id) => {
                    let connection = self.connection(*id);
                    drop(targets);
                    let id = callback.id;
                    if !connection.is_some_and(|connection| {
                        connection.call_back(id, callback.xid, callback.record, callback.due_ms)
                    }) {
                        self.unanswered([id]);
                    }
                }
            },
            Entry::Vacant(_)
                if count >= CALLBACK_CONNECTIONS_MAX
                    || self.callback_dialers.pool.is_crowded(TaskOrigin::call(address.ip())) =>
            {
                drop(targets);
                self.unanswered([callback.id]);
            }
            Entry::Vacant(entry) => {
                entry.insert(Target::Connecting(vec![callback]));
                drop(targets);
                let driver = self.clone();
                self.callback_dialers
                    .pool
                    .submit(TaskOrigin::call(address.ip()), move || driver.dial(address));
            }
        }
    }

    fn dial(self: &Arc<Self>, address: SocketAddr) {
        let socket =
            TcpStream::connect_timeout(&address, CALLBACK_CONNECT_MAX).and_then(|socket| {
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
                Ok(socket)
            });
        match socket {
            Ok(socket) => {
                let queue = match self.callback_dialers.targets.lock().get_mut(&address) {
                    Some(Target::Connecting(queue)) => std::mem::take(queue),
                    _ => Vec::new(),
                };
                let inbox = &self.inboxes[usize::from(address.port()) % self.inboxes.len()];
                inbox.post(Message::Connected(socket, address, queue));
            }
            Err(error) => {
                tracing::debug!(%address, %error, "callback address of a client is unreachable");
                if let Some(Target::Connecting(queue)) =
                    self.callback_dialers.targets.lock().remove(&address)
                {
                    self.unanswered(queue.into_iter().map(|callback| callback.id));
                }
            }
        }
    }

    /// Works on another thread, because the engine may be the caller.
    pub(crate) fn unanswered(self: &Arc<Self>, ids: impl IntoIterator<Item = CallbackId>) {
        self.give_up(ids, Unreachable::Peer);
    }

    pub(super) fn give_up(
        self: &Arc<Self>,
        ids: impl IntoIterator<Item = CallbackId>,
        why: Unreachable,
    ) {
        for id in ids {
            self.traffic.callbacks_failed.add(1);
            self.gss.iter().for_each(|gss| gss.forget_callback(id));
            let driver = self.clone();
            self.pool.submit(TaskOrigin::Server, move || {
                let effects = driver.engine.callback_reply(id, Err(why), clock::now());
                driver.apply(effects);
            });
        }
    }

    pub(crate) fn answered(self: &Arc<Self>, connection: &Connection, xid: u32, record: &[u8]) {
        let Some(id) = connection.find_callback(xid) else { return };
        let genuine = match self
            .gss
            .as_ref()
            .map_or(Answered::Plain, |gss| gss.open_callback_answer(id, record))
        {
            Answered::Plain => None,
            Answered::Genuine(record) => Some(record),
            Answered::Forged => {
                self.gss.iter().for_each(|gss| gss.log_forged_answer(connection.peer()));
                let refused = Refused {
                    detail: "an answer to a callback whose checksum does not hold",
                    ..Refused::of(Refusal::Altered, connection.engine())
                };
                self.audit.iter().for_each(|audit| audit.refuse(&refused));
                return;
            }
        };
        if connection.take_callback(xid).is_none() {
            return;
        }
        let effects =
            self.engine.callback_reply(id, Ok(genuine.as_deref().unwrap_or(record)), clock::now());
        self.apply(effects);
    }
}
