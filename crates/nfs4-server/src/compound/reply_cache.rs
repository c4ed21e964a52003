//! ReplyCache to calls of 4.0 that changed something, for those that come again: 4.0 has no sessions,
//! and a client repeats what was not answered over a new connection (RFC 7530, section 3.1.1; the
//! duplicate request cache of practice). Bounded in entries, bytes and age.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::Connection;

/// What makes a call the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReplyKey {
    pub(crate) peer: IpAddr,
    pub(crate) xid: u32,
    pub(crate) digest: u64,
    pub(crate) len: usize,
}

/// What is known of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    UnderWay,
    Answered(Vec<u8>),
}

/// The cache.
#[derive(Default)]
pub(crate) struct ReplyCache {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    calls: HashMap<ReplyKey, Call>,
    /// Answered calls, oldest first, with the time of the answer.
    order: VecDeque<(ReplyKey, u64)>,
    len: usize,
}

struct Call {
    known: Known,
    /// Over which connection it came.
    origin: Weak<Connection>,
}

impl Call {
    /// Whether a call that looks the same is this one again. A client calls again over the same
    /// connection, or when that is gone (RFC 7530, section 3.1.1); a Linux client from the same
    /// port, and then we may not know yet that it is gone. As long as it is there, one from
    /// elsewhere is another client's that numbers its calls alike.
    fn is_of(&self, connection: &Arc<Connection>) -> bool {
        self.origin.upgrade().is_none_or(|origin| origin.peer() == connection.peer() || origin.is_closed())
    }
}

/// Calls that are remembered: at ten thousand changes a second, as long as a connection takes to
/// come back.
const CALLS_MAX: usize = 16 * 1024;
/// Bytes of replies that are remembered.
const LEN_MAX: usize = 16 << 20;
/// Longest reply that is: one that changes something is short.
const REPLY_LEN_MAX: usize = 4096;
/// How long an answer is remembered, milliseconds: a client that is away for longer has lost its
/// lease.
const AGE_MS_MAX: u64 = 120_000;

impl ReplyCache {
    /// What is known of this call, which has come over `connection`.
    pub(crate) fn look(&self, key: &ReplyKey, connection: &Arc<Connection>) -> Option<Known> {
        self.table.lock().calls.get(key).filter(|call| call.is_of(connection)).map(|call| call.known.clone())
    }

    /// A call is about to change something.
    pub(crate) fn begin(&self, key: ReplyKey, connection: &Arc<Connection>, now_ms: u64) {
        let mut table = self.table.lock();
        table.clean(now_ms);
        table.put(key, Known::UnderWay, connection);
    }

    /// A call that began is answered.
    pub(crate) fn answered(&self, key: ReplyKey, connection: &Arc<Connection>, reply: &[u8], now_ms: u64) {
        let mut table = self.table.lock();
        if reply.len() > REPLY_LEN_MAX {
            table.take(&key);
            return;
        }
        table.put(key, Known::Answered(reply.to_vec()), connection);
        table.order.push_back((key, now_ms));
        table.clean(now_ms);
    }
}

impl Table {
    fn put(&mut self, key: ReplyKey, known: Known, connection: &Arc<Connection>) {
        self.take(&key);
        if let Known::Answered(reply) = &known {
            self.len += reply.len();
        }
        self.calls.insert(key, Call { known, origin: Arc::downgrade(connection) });
    }

    fn take(&mut self, key: &ReplyKey) {
        if let Some(Call { known: Known::Answered(reply), .. }) = self.calls.remove(key) {
            self.len -= reply.len();
        }
    }

    fn clean(&mut self, now_ms: u64) {
        while let Some((key, at)) = self.order.front().copied() {
            let due = at.saturating_add(AGE_MS_MAX) <= now_ms;
            if !due && self.order.len() <= CALLS_MAX && self.len <= LEN_MAX {
                return;
            }
            self.order.pop_front();
            // One that is under way again has its place in the order when it is answered.
            if self.calls.get(&key).is_some_and(|call| matches!(call.known, Known::Answered(_))) {
                self.take(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(xid: u32) -> ReplyKey {
        ReplyKey { peer: IpAddr::from([127, 0, 0, 1]), xid, digest: 5, len: 9 }
    }

    fn connection(id: u64) -> Arc<Connection> {
        Arc::new(Connection::new(crate::ConnectionId(id), ([127, 0, 0, 1], 700 + id as u16).into()))
    }

    #[test]
    fn a_repeated_call_is_known() {
        let (replies, one) = (ReplyCache::default(), connection(1));
        assert_eq!(replies.look(&key(1), &one), None);
        replies.begin(key(1), &one, 0);
        assert_eq!(replies.look(&key(1), &one), Some(Known::UnderWay));
        replies.answered(key(1), &one, b"done", 0);
        assert_eq!(replies.look(&key(1), &one), Some(Known::Answered(b"done".to_vec())));
        assert_eq!(replies.look(&key(2), &one), None);
    }

    // RFC 7530, section 3.1.1.
    #[test]
    fn the_same_call_over_another_connection_is_a_retry_once_the_first_is_gone() {
        let (replies, one, two) = (ReplyCache::default(), connection(1), connection(2));
        replies.begin(key(1), &one, 0);
        replies.answered(key(1), &one, b"done", 0);
        assert_eq!(replies.look(&key(1), &two), None);
        one.close();
        assert_eq!(replies.look(&key(1), &two), Some(Known::Answered(b"done".to_vec())));
        drop(one);
        assert_eq!(replies.look(&key(1), &two), Some(Known::Answered(b"done".to_vec())));
    }

    // A retry that meets its original waits for nothing and leaves nothing behind: `compound` ends its
    // connection.
    #[test]
    fn a_call_under_way_is_there_once_however_often_it_comes() {
        let (replies, one) = (ReplyCache::default(), connection(1));
        replies.begin(key(1), &one, 0);
        one.close();
        for id in 2..1000 {
            assert_eq!(replies.look(&key(1), &connection(id)), Some(Known::UnderWay));
        }
        let table = replies.table.lock();
        assert_eq!((table.calls.len(), table.order.len(), table.len), (1, 0, 0));
    }

    #[test]
    fn the_oldest_go_by_age_and_by_number() {
        let (replies, one) = (ReplyCache::default(), connection(1));
        for xid in 0..CALLS_MAX as u32 + 1 {
            replies.begin(key(xid), &one, 0);
            replies.answered(key(xid), &one, b"done", 0);
        }
        assert_eq!(replies.look(&key(0), &one), None);
        assert!(replies.look(&key(1), &one).is_some());
        replies.begin(key(7), &one, AGE_MS_MAX);
        assert_eq!(replies.look(&key(1), &one), None);
        assert_eq!(replies.table.lock().len, 0);
    }
}
