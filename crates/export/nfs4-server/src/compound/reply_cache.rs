//! A 4.0 client repeats an unanswered call over a new connection (RFC 7530 §3.1.1).

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::Connection;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReplyKey {
    pub(crate) peer: IpAddr,
    pub(crate) xid: u32,
    pub(crate) digest: u64,
    pub(crate) len: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KnownCall {
    InProgress,
    Answered(Vec<u8>),
}

#[derive(Default)]
pub(crate) struct ReplyCache {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    calls: HashMap<ReplyKey, Call>,
    order: VecDeque<(ReplyKey, u64)>,
    len: usize,
}

struct Call {
    known: KnownCall,
    origin: Weak<Connection>,
}

impl Call {
    /// A retry comes over the same connection, or over a new one after the first is gone, which the
    /// server may learn late: a reused port counts too. The first copy may be the later one to
    /// execute.
    fn is_of(&self, connection: &Arc<Connection>) -> bool {
        self.origin.upgrade().is_none_or(|origin| {
            origin.peer() == connection.peer() || origin.is_closed() || connection.is_closed()
        })
    }
}

/// Ten thousand changes a second for as long as a reconnect takes.
const CALLS_MAX: usize = 16 * 1024;
const LEN_MAX: usize = 16 << 20;
const REPLY_LEN_MAX: usize = 4096;
/// A client that is away longer has lost its lease.
const AGE_MS_MAX: u64 = 120_000;

impl ReplyCache {
    pub(crate) fn find(&self, key: &ReplyKey, connection: &Arc<Connection>) -> Option<KnownCall> {
        self.table
            .lock()
            .calls
            .get(key)
            .filter(|call| call.is_of(connection))
            .map(|call| call.known.clone())
    }

    pub(crate) fn begin(&self, key: ReplyKey, connection: &Arc<Connection>, now_ms: u64) {
        let mut table = self.table.lock();
        table.clean(now_ms);
        table.put(key, KnownCall::InProgress, connection);
    }

    pub(crate) fn answered(
        &self,
        key: ReplyKey,
        connection: &Arc<Connection>,
        reply: &[u8],
        now_ms: u64,
    ) {
        let mut table = self.table.lock();
        if reply.len() > REPLY_LEN_MAX {
            table.take(&key);
            return;
        }
        table.put(key, KnownCall::Answered(reply.to_vec()), connection);
        table.order.push_back((key, now_ms));
        table.clean(now_ms);
    }
}

impl Table {
    fn put(&mut self, key: ReplyKey, known: KnownCall, connection: &Arc<Connection>) {
        self.take(&key);
        if let KnownCall::Answered(reply) = &known {
            self.len += reply.len();
        }
        self.calls.insert(key, Call { known, origin: Arc::downgrade(connection) });
    }

    fn take(&mut self, key: &ReplyKey) {
        if let Some(Call { known: KnownCall::Answered(reply), .. }) = self.calls.remove(key) {
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
            if self.calls.get(&key).is_some_and(|call| matches!(call.known, KnownCall::Answered(_)))
            {
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
    fn call_over_new_connection_is_retry_after_first_is_gone() {
        let (replies, one, two) = (ReplyCache::default(), connection(1), connection(2));
        replies.begin(key(1), &one, 0);
        replies.answered(key(1), &one, b"done", 0);
        assert_eq!(replies.find(&key(1), &two), None);
        one.close();
        assert_eq!(replies.find(&key(1), &two), Some(KnownCall::Answered(b"done".to_vec())));
        drop(one);
        assert_eq!(replies.find(&key(1), &two), Some(KnownCall::Answered(b"done".to_vec())));
    }

    #[test]
    fn late_copy_over_closed_connection_is_known() {
        let (replies, one, two) = (ReplyCache::default(), connection(1), connection(2));
        replies.begin(key(1), &two, 0);
        replies.answered(key(1), &two, b"done", 0);
        assert_eq!(replies.find(&key(1), &one), None);
        one.close();
        assert_eq!(replies.find(&key(1), &one), Some(KnownCall::Answered(b"done".to_vec())));
    }

    #[test]
    fn running_call_is_stored_once() {
        let (replies, one) = (ReplyCache::default(), connection(1));
        replies.begin(key(1), &one, 0);
        one.close();
        for id in 2..1000 {
            assert_eq!(replies.find(&key(1), &connection(id)), Some(KnownCall::InProgress));
        }
        let table = replies.table.lock();
        assert_eq!((table.calls.len(), table.order.len(), table.len), (1, 0, 0));
    }

    #[test]
    fn oldest_replies_are_dropped_by_age_and_count() {
        let (replies, one) = (ReplyCache::default(), connection(1));
        for xid in 0..CALLS_MAX as u32 + 1 {
            replies.begin(key(xid), &one, 0);
            replies.answered(key(xid), &one, b"done", 0);
        }
        assert_eq!(replies.find(&key(0), &one), None);
        assert!(replies.find(&key(1), &one).is_some());
        replies.begin(key(7), &one, AGE_MS_MAX);
        assert_eq!(replies.find(&key(1), &one), None);
        assert_eq!(replies.table.lock().len, 0);
    }
}
