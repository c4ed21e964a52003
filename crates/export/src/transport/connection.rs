//! A connection as all threads see it: its socket, what waits to be sent on it, how much of it is
//! waiting elsewhere, and the callbacks that it owes answers to. What has been received belongs to
//! the thread that reads (`worker`).

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use vouch_nfs4_server::CallbackId;

use crate::clock;
use crate::gss;
use crate::limits::{CALLBACKS_OUTSTANDING_MAX, OUTPUT_BYTES_MAX, OUTPUT_REPLIES_MAX, OUTPUT_SPANS_MAX, WAITING_PER_CONNECTION_MAX};
use crate::memory_quota::{AddressShares, BlockedCharge};
use crate::thread_pool::TaskOrigin;
use crate::transport::inbox::{Inbox, Message};
use crate::transport::output::{Outgoing, Output};
use crate::transport::send::{self, Sent};

/// Who began the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// A client, to call us.
    Client,
    /// We, to call a client of 4.0 back.
    Callback,
}

/// A connection.
pub(crate) struct Connection {
    socket: TcpStream,
    side: Side,
    engine: Arc<vouch_nfs4_server::Connection>,
    /// Where it is read, and under which number there.
    inbox: Arc<Inbox>,
    slot: usize,
    output: Mutex<Output>,
    /// Calls that wait in a pool, or for a commit, and replies that wait for records.
    waiting: AtomicUsize,
    shares: Arc<AddressShares>,
    /// The worker has stopped reading until something leaves.
    paused: AtomicBool,
    /// Nothing can be sent any more.
    failed: AtomicBool,
    /// The last reply that was sealed was a long one.
    long_replies: AtomicBool,
    /// Since when the socket takes nothing, by the monotonic clock; 0 if it does.
    full_since_ms: AtomicU64,
    sent_len: AtomicU64,
    callbacks: Mutex<Vec<Outstanding>>,
    /// Whether a callback was ever sent here.
    has_sent_callbacks: AtomicBool,
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
    ) -> Self {
        Connection {
            socket,
            side,
            engine,
            inbox,
            slot,
            output: Mutex::default(),
            waiting: AtomicUsize::new(0),
            shares,
            paused: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            long_replies: AtomicBool::new(false),
            full_since_ms: AtomicU64::new(0),
            sent_len: AtomicU64::new(0),
            callbacks: Mutex::default(),
            has_sent_callbacks: AtomicBool::new(false),
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

    /// Whether nothing has come that was not read. A system call.
    pub(crate) fn has_no_input(&self) -> bool {
        rustix::io::ioctl_fionread(&self.socket).is_ok_and(|len| len == 0)
    }

    /// Whether the last reply that was sealed was a long one.
    pub(crate) fn long_replies(&self) -> bool {
        self.long_replies.load(Ordering::Relaxed)
    }

    /// Notes how long replies are.
    pub(crate) fn set_long_replies(&self, long: bool) {
        self.long_replies.store(long, Ordering::Relaxed);
    }

    /// Seals a reply if it must be, and sends it.
    pub(crate) fn send_reply(&self, mut reply: Outgoing) {
        gss::seal_all([&mut reply]);
        self.send([reply], |_| {});
    }

    /// Sends a reply whose records are kept. One that must be sealed is left to the thread that
    /// reads here, which seals it with others: whoever keeps records does that for all
    /// connections, and would seal one after the other.
    pub(crate) fn send_durable(self: &Arc<Self>, reply: Outgoing) {
        if reply.is_ready() {
            return self.send([reply], |_| {});
        }
        self.begin_waiting();
        self.inbox.post(Message::ReplyDurable(self.clone(), reply));
    }

    /// Queues records and sends what the socket takes, from whatever thread. What it does not take
    /// leaves when the worker hears of room. Buffers of what has left go to `done`. After a
    /// failure nothing is kept: the worker closes.
    pub(crate) fn send(&self, records: impl IntoIterator<Item = Outgoing>, done: impl FnMut(Vec<u8>)) {
        let mut output = self.output.lock();
        let was_empty = output.is_empty();
        for record in records {
            match record.is_ready() {
                true => output.push(record),
                // RFC 2203, section 5.3.3.4.4: a reply that can't be wrapped is not sent; the client comes back over another connection.
                false => self.failed.store(true, Ordering::Release),
            }
        }
        // What waits already waits for the socket; a try would only cost a system call.
        if was_empty || self.full_since_ms.load(Ordering::Relaxed) == 0 {
            self.flush(&mut output, done);
        }
        let failed = self.failed.load(Ordering::Relaxed);
        if failed {
            output.clear();
        }
        drop(output);
        if failed {
            self.inbox.post(Message::Check { slot: self.slot, id: self.engine.id() });
        }
        self.unpause();
    }

    /// The socket has room again.
    pub(crate) fn writable(&self, done: impl FnMut(Vec<u8>)) {
        let mut output = self.output.lock();
        if !output.is_empty() {
            self.flush(&mut output, done);
            drop(output);
            self.unpause();
        }
    }

    fn flush(&self, output: &mut Output, done: impl FnMut(Vec<u8>)) {
        let mut sent = 0;
        match send::send(self.socket.as_fd(), output, &mut sent, done) {
            Ok(Sent::All) => self.full_since_ms.store(0, Ordering::Relaxed),
            Ok(Sent::Full) => {
                if sent > 0 || self.full_since_ms.load(Ordering::Relaxed) == 0 {
                    self.full_since_ms.store(clock::mono_ms().max(1), Ordering::Relaxed);
                }
            }
            Err(_) => {
                output.clear();
                self.failed.store(true, Ordering::Release);
            }
        }
        self.sent_len.fetch_add(sent, Ordering::Relaxed);
    }

    /// Whether so much is under way that no more calls should be taken up. If so, the worker is
    /// told when that changes.
    pub(crate) fn pause(&self) -> bool {
        if !self.is_overloaded() {
            return false;
        }
        self.paused.store(true, Ordering::SeqCst);
        // Something may have left between the question and the mark.
        if self.is_overloaded() {
            return true;
        }
        self.paused.store(false, Ordering::SeqCst);
        false
    }

    fn unpause(&self) {
        if self.paused.load(Ordering::SeqCst) && !self.is_overloaded() && self.paused.swap(false, Ordering::SeqCst) {
            self.inbox.post(Message::Check { slot: self.slot, id: self.engine.id() });
        }
    }

    fn is_overloaded(&self) -> bool {
        if self.waiting.load(Ordering::SeqCst) >= WAITING_PER_CONNECTION_MAX {
            return true;
        }
        let output = self.output.lock();
        output.bytes_len() > OUTPUT_BYTES_MAX || output.spans_len() > OUTPUT_SPANS_MAX || output.records() > OUTPUT_REPLIES_MAX
    }

    /// Whose work its calls are.
    pub(crate) fn origin(&self) -> TaskOrigin {
        TaskOrigin::call(self.peer().ip())
    }

    /// Whether one more of its calls, which may be so long, may have to wait: many of its address
    /// do, and of all.
    pub(crate) fn may_wait(&self, len: usize) -> bool {
        self.shares.calls.has_room(1) && self.shares.waiting_len.has_room(len)
    }

    /// Takes so much memory for a call that waits, room or not, until that goes.
    pub(crate) fn charge_blocked(&self, len: usize) -> BlockedCharge {
        BlockedCharge::new(self.shares.clone(), len)
    }

    /// A call goes to the pool, or a reply to a thread that keeps records.
    pub(crate) fn begin_waiting(&self) {
        self.shares.calls.charge(1);
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// It came back. See [`ActiveCall`] for a call that may panic, and [`PendingReply`].
    pub(crate) fn end_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.shares.calls.release(1);
        self.unpause();
    }

    /// Whether calls of it wait for a disk or a network.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether nothing of it is under way: no call in the pool, no reply to send, now or once
    /// records are kept.
    pub(crate) fn is_quiet(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0 && self.output.lock().is_empty()
    }

    /// Ends it: the worker hears of the end and closes.
    pub(crate) fn shut(&self) {
        self.failed.store(true, Ordering::Release);
        // A socket that is not connected any more needs no end.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.inbox.post(Message::Check { slot: self.slot, id: self.engine.id() });
    }

    /// Whether it must be closed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// For how long the socket has taken nothing of what waits.
    pub(crate) fn full_for_ms(&self, now_ms: u64) -> u64 {
        match self.full_since_ms.load(Ordering::Relaxed) {
            0 => 0,
            since => now_ms.saturating_sub(since),
        }
    }

    /// Bytes sent.
    pub(crate) fn sent_len(&self) -> u64 {
        self.sent_len.load(Ordering::Relaxed)
    }

    /// Sends a callback whose answer is awaited until `due_ms`. False if that can't be: then it has
    /// not been sent.
    pub(crate) fn call_back(&self, id: CallbackId, xid: u32, record: Outgoing, due_ms: u64) -> bool {
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

    /// Whether a reply may come here: late, if not one that is waited for. Anywhere else it is a
    /// call that was altered on its way, and its client waits.
    pub(crate) fn has_sent_callbacks(&self) -> bool {
        self.has_sent_callbacks.load(Ordering::Acquire)
    }

    /// The callback of this transaction id, which is waited for.
    pub(crate) fn find_callback(&self, xid: u32) -> Option<CallbackId> {
        self.callbacks.lock().iter().find(|callback| callback.xid == xid).map(|callback| callback.id)
    }

    /// The callback that a reply with this transaction id answers.
    pub(crate) fn take_callback(&self, xid: u32) -> Option<CallbackId> {
        let mut callbacks = self.callbacks.lock();
        let place = callbacks.iter().position(|callback| callback.xid == xid)?;
        Some(callbacks.swap_remove(place).id)
    }

    /// Callbacks that will not be answered: those that are late, or all if the connection is gone.
    pub(crate) fn take_unanswered(&self, now_ms: Option<u64>) -> Vec<CallbackId> {
        let mut callbacks = self.callbacks.lock();
        let late = |callback: &Outstanding| now_ms.is_none_or(|now| callback.due_ms <= now);
        let ids = callbacks.iter().filter(|callback| late(callback)).map(|callback| callback.id).collect();
        callbacks.retain(|callback| !late(callback));
        ids
    }
}

/// A call of this connection that a thread of the pool works on. If that panics there is no reply,
/// and the connection is closed, so that the client asks again.
pub(crate) struct ActiveCall<'a>(pub(crate) &'a Connection);

impl Drop for ActiveCall<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shut();
        }
        self.0.end_waiting();
    }
}

/// A reply of this connection that waits for records, and counts as under way until this goes,
/// whether it has been sent by then or never will be.
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
