use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use vouch_daemon::unacknowledged::unacknowledged_len;
use vouch_nfs4_server::CallbackId;
use vouch_rpc_tls::{CertificateDer, Sealer};

use crate::clock;
use crate::gss;
use crate::lease::ServingRight;
use crate::limits::{
    CALLBACKS_OUTSTANDING_MAX, OUTPUT_BYTES_MAX, OUTPUT_REPLIES_MAX, OUTPUT_SPANS_MAX,
    WAITING_PER_CONNECTION_MAX,
};
use crate::memory_quota::{AddressShares, BlockedCharge};
use crate::qos::ConnectionQos;
use crate::thread_pool::TaskOrigin;
use crate::tls::TlsOutput;
use crate::transport::inbox::{Inbox, Message};
use crate::transport::output::{Outgoing, Output};
use crate::transport::send::{self, Sent};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Callback,
}

pub(crate) struct Connection {
    socket: TcpStream,
    side: Side,
    engine: Arc<vouch_nfs4_server::Connection>,
    inbox: Arc<Inbox>,
    slot: usize,
    output: Mutex<Outbound>,
    /// Client certificates, the client's own first, to verify them again later.
    certificates: OnceLock<Vec<CertificateDer<'static>>>,
    waiting: AtomicUsize,
    shares: Arc<AddressShares>,
    paused: AtomicBool,
    failed: AtomicBool,
    long_replies: AtomicBool,
    full_since_ms: AtomicU64,
    sent_len: AtomicU64,
    callbacks: Mutex<Vec<Outstanding>>,
    has_sent_callbacks: AtomicBool,
    right: Option<Arc<ServingRight>>,
    qos: ConnectionQos,
}

#[derive(Default)]
struct Outbound {
    queue: Output,
    tls: Option<TlsOutput>,
}

impl Outbound {
    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tls.as_ref().is_none_or(|tls| tls.pending_len() == 0)
    }
}

#[derive(Clone, Copy)]
struct Outstanding {
    xid: u32,
    id: CallbackId,
    due_ms: u64,
}

impl Connection {
    pub(crate) fn new(
        socket: TcpStream,
        side: Side,
        engine: Arc<vouch_nfs4_server::Connection>,
        inbox: Arc<Inbox>,
        slot: usize,
        shares: Arc<AddressShares>,
        right: Option<Arc<ServingRight>>,
    ) -> Self {
        Connection {
            socket,
            side,
            engine,
            inbox,
            slot,
            output: Mutex::default(),
            certificates: OnceLock::new(),
            waiting: AtomicUsize::new(0),
            shares,
            paused: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            long_replies: AtomicBool::new(false),
            full_since_ms: AtomicU64::new(0),
            sent_len: AtomicU64::new(0),
            callbacks: Mutex::default(),
            has_sent_callbacks: AtomicBool::new(false),
            right,
            qos: ConnectionQos::default(),
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(crate) fn side(&self) -> Side {
        self.side
    }

    pub(crate) fn engine(&self) -> &Arc<vouch_nfs4_server::Connection> {
        &self.engine
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.engine.peer()
    }

    pub(crate) fn has_no_input(&self) -> bool {
        rustix::io::ioctl_fionread(&self.socket).is_ok_and(|len| len == 0)
    }

    pub(crate) fn long_replies(&self) -> bool {
        self.long_replies.load(Ordering::Relaxed)
    }

    pub(crate) fn set_long_replies(&self, long: bool) {
        self.long_replies.store(long, Ordering::Relaxed);
    }

    pub(crate) fn send_reply(&self, mut reply: Outgoing) {
        gss::seal_all([&mut reply]);
        self.send([reply], |_| {});
    }

    /// The worker seals it with others: the recovery and audit threads serve all connections.
    pub(crate) fn send_durable(self: &Arc<Self>, reply: Outgoing) {
        if reply.is_ready() {
            return self.send([reply], |_| {});
        }
        self.begin_waiting();
        self.inbox.post(Message::ReplyDurable(self.clone(), reply));
    }

    /// The worker sends the rest, or closes the connection after an error.
    pub(crate) fn send(
        &self,
        records: impl IntoIterator<Item = Outgoing>,
        done: impl FnMut(Vec<u8>),
    ) {
        let mut output = self.output.lock();
        let was_empty = output.is_empty();
        for record in records {
            match record.is_ready() {
                true => output.queue.push(record),
                // A reply that cannot be wrapped is not sent (RFC 2203 §5.3.3.4.4). The client
                // reconnects.
                false => self.failed.store(true, Ordering::Release),
            }
        }
        // An attempt on a full socket only costs a system call.
        if was_empty || self.full_since_ms.load(Ordering::Relaxed) == 0 {
            self.flush(&mut output, done);
        }
        let failed = self.failed.load(Ordering::Relaxed);
        if failed {
            output.queue.clear();
        }
        drop(output);
        if failed {
            self.inbox.post(Message::Check { slot: self.slot, id: self.engine.id() });
        }
        self.unpause();
    }

    pub(crate) fn writable(&self, done: impl FnMut(Vec<u8>)) {
        let mut output = self.output.lock();
        if !output.is_empty() {
            self.flush(&mut output, done);
            drop(output);
            self.unpause();
        }
    }

    fn flush(&self, output: &mut Outbound, done: impl FnMut(Vec<u8>)) {
        // Another head may serve: nothing leaves any more.
        if self.right.as_ref().is_some_and(|right| !right.is_valid()) {
            output.queue.clear();
            self.failed.store(true, Ordering::Release);
            return;
        }
        let mut sent = 0;
        let Outbound { queue, tls } = output;
        let result = match tls {
            None => send::send(self.socket.as_fd(), queue, &mut sent, done),
            Some(tls) => tls.send(self.socket.as_fd(), queue, &mut sent, done),
        };
        match result {
            Ok(Sent::All) => self.full_since_ms.store(0, Ordering::Relaxed),
            Ok(Sent::Full) => {
                if sent > 0 || self.full_since_ms.load(Ordering::Relaxed) == 0 {
                    self.full_since_ms.store(clock::mono_ms().max(1), Ordering::Relaxed);
                }
            }
            Err(_) => {
                output.queue.clear();
                self.failed.store(true, Ordering::Release);
            }
        }
        self.sent_len.fetch_add(sent, Ordering::Relaxed);
    }

    /// False if output in clear text still waits.
    pub(crate) fn begin_tls(&self, by_kernel: bool) -> bool {
        let mut output = self.output.lock();
        let is_clean = output.is_empty() && output.tls.is_none() && !self.has_waiting();
        if is_clean {
            output.tls = Some(TlsOutput::with_kernel(by_kernel));
        }
        is_clean
    }

    pub(crate) fn send_handshake(&self, bytes: &[u8]) {
        let mut output = self.output.lock();
        if let Some(tls) = &mut output.tls {
            tls.push_handshake(bytes);
        }
        self.flush(&mut output, |_| {});
    }

    pub(crate) fn open_tls(&self, sealer: Sealer, certificates: Vec<CertificateDer<'static>>) {
        if let Some(tls) = &mut self.output.lock().tls {
            tls.set_sealer(sealer);
        }
        let set = self.certificates.set(certificates);
        debug_assert!(set.is_ok(), "a connection has one handshake");
    }

    pub(crate) fn certificates(&self) -> &[CertificateDer<'static>] {
        self.certificates.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn update_tls_key(&self) {
        let mut output = self.output.lock();
        if output.tls.as_mut().is_some_and(|tls| tls.update_key().is_err()) {
            self.failed.store(true, Ordering::Release);
        }
        self.flush(&mut output, |_| {});
    }

    /// The worker must stop reading, until a message.
    pub(crate) fn pause(&self) -> bool {
        if !self.is_overloaded() {
            return false;
        }
        self.paused.store(true, Ordering::SeqCst);
        if self.is_overloaded() {
            return true;
        }
        self.paused.store(false, Ordering::SeqCst);
        false
    }

    fn unpause(&self) {
        if self.paused.load(Ordering::SeqCst)
            && !self.is_overloaded()
            && self.paused.swap(false, Ordering::SeqCst)
        {
            self.inbox.post(Message::Check { slot: self.slot, id: self.engine.id() });
        }
    }

    fn is_overloaded(&self) -> bool {
        if self.waiting.load(Ordering::SeqCst) >= WAITING_PER_CONNECTION_MAX {
            return true;
        }
        let output = self.output.lock();
        let queue = &output.queue;
        queue.bytes_len() > OUTPUT_BYTES_MAX
            || queue.spans_len() > OUTPUT_SPANS_MAX
            || queue.records() > OUTPUT_REPLIES_MAX
    }

    pub(crate) fn shares(&self) -> &Arc<AddressShares> {
        &self.shares
    }

    pub(crate) fn qos(&self) -> &ConnectionQos {
        &self.qos
    }

    pub(crate) fn origin(&self) -> TaskOrigin {
        TaskOrigin::call(self.peer().ip())
    }

    pub(crate) fn may_wait(&self, len: usize) -> bool {
        self.shares.calls.has_room(1) && self.shares.waiting_len.has_room(len)
    }

    /// Charges memory, even above the quota, until the drop.
    pub(crate) fn charge_blocked(&self, len: usize) -> BlockedCharge {
        BlockedCharge::new(self.shares.clone(), len)
    }

    pub(crate) fn begin_waiting(&self) {
        self.shares.calls.charge(1);
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.shares.calls.release(1);
        self.unpause();
    }

    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0 && self.output.lock().is_empty()
    }

    /// Whether each reply has reached the peer. The kernel discards what has not, when a socket with
    /// unread calls is closed.
    pub(crate) fn has_delivered_all(&self) -> bool {
        self.is_quiet() && unacknowledged_len(&self.socket).is_ok_and(|len| len == 0)
    }

    pub(crate) fn shut_down(&self) {
        if let Some(mut output) = self.output.try_lock()
            && output.queue.is_empty()
            && output.tls.as_mut().is_some_and(|tls| tls.close().is_ok())
        {
            self.flush(&mut output, |_| {});
        }
        self.failed.store(true, Ordering::Release);
        let _ = self.socket.shutdown(Shutdown::Both);
        self.inbox.post(Message::Check { slot: self.slot, id: self.engine.id() });
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn full_for_ms(&self, now_ms: u64) -> u64 {
        match self.full_since_ms.load(Ordering::Relaxed) {
            0 => 0,
            since => now_ms.saturating_sub(since),
        }
    }

    pub(crate) fn sent_len(&self) -> u64 {
        self.sent_len.load(Ordering::Relaxed)
    }

    /// False if the callback was not sent.
    pub(crate) fn call_back(
        &self,
        id: CallbackId,
        xid: u32,
        record: Outgoing,
        due_ms: u64,
    ) -> bool {
        {
            let mut callbacks = self.callbacks.lock();
            if self.has_failed() || callbacks.len() >= CALLBACKS_OUTSTANDING_MAX {
                return false;
            }
            callbacks.push(Outstanding { xid, id, due_ms });
        }
        self.has_sent_callbacks.store(true, Ordering::Release);
        self.send([record], |_| {});
        true
    }

    /// Without sent callbacks, a received reply is a damaged call, and its client waits.
    pub(crate) fn has_sent_callbacks(&self) -> bool {
        self.has_sent_callbacks.load(Ordering::Acquire)
    }

    pub(crate) fn find_callback(&self, xid: u32) -> Option<CallbackId> {
        self.callbacks
            .lock()
            .iter()
            .find(|callback| callback.xid == xid)
            .map(|callback| callback.id)
    }

    pub(crate) fn take_callback(&self, xid: u32) -> Option<CallbackId> {
        let mut callbacks = self.callbacks.lock();
        let place = callbacks.iter().position(|callback| callback.xid == xid)?;
        Some(callbacks.swap_remove(place).id)
    }

    /// Removes late callbacks, or all if `now_ms` is `None`.
    pub(crate) fn take_unanswered(&self, now_ms: Option<u64>) -> Vec<CallbackId> {
        let mut callbacks = self.callbacks.lock();
        let late = |callback: &Outstanding| now_ms.is_none_or(|now| callback.due_ms <= now);
        let ids = callbacks
            .iter()
            .filter(|callback| late(callback))
            .map(|callback| callback.id)
            .collect();
        callbacks.retain(|callback| !late(callback));
        ids
    }
}

/// A panic closes the connection, so that the client retries.
pub(crate) struct ActiveCall<'a>(pub(crate) &'a Connection);

impl Drop for ActiveCall<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shut_down();
        }
        self.0.end_waiting();
    }
}

pub(crate) struct PendingReply(Arc<Connection>);

impl PendingReply {
    pub(crate) fn new(connection: &Arc<Connection>) -> Self {
        connection.begin_waiting();
        PendingReply(connection.clone())
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.0
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        self.0.end_waiting();
    }
}
