//! Replies to calls of 4.0 that changed something, for those that come again: 4.0 has no sessions, and a client repeats what was not answered over a new connection
//! (RFC 7530, section 3.1.1; the duplicate request cache of practice). Bounded in entries, bytes and age.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use parking_lot::Mutex;

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
pub(crate) struct Replies {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    calls: HashMap<ReplyKey, Known>,
    /// Answered calls, oldest first, with the time of the answer.
    order: VecDeque<(ReplyKey, u64)>,
    len: usize,
}

/// Calls that are remembered: at ten thousand changes a second, as long as a connection takes to come back.
const CALLS_MAX: usize = 16 * 1024;
/// Bytes of replies that are remembered.
const LEN_MAX: usize = 16 << 20;
/// Longest reply that is: one that changes something is short.
const REPLY_LEN_MAX: usize = 4096;
/// How long an answer is remembered, milliseconds: a client that is away for longer has lost its lease.
const AGE_MS_MAX: u64 = 120_000;

impl Replies {
    /// What is known of this call.
    pub(crate) fn look(&self, key: &ReplyKey) -> Option<Known> {
        self.table.lock().calls.get(key).cloned()
    }

    /// A call is about to change something.
    pub(crate) fn begin(&self, key: ReplyKey, now_ms: u64) {
        let mut table = self.table.lock();
        table.clean(now_ms);
        table.calls.insert(key, Known::UnderWay);
    }

    /// A call that began is answered.
    pub(crate) fn answered(&self, key: ReplyKey, reply: &[u8], now_ms: u64) {
        let mut table = self.table.lock();
        if reply.len() > REPLY_LEN_MAX {
            table.calls.remove(&key);
            return;
        }
        table.calls.insert(key, Known::Answered(reply.to_vec()));
        table.order.push_back((key, now_ms));
        table.len += reply.len();
        table.clean(now_ms);
    }
}

impl Table {
    fn clean(&mut self, now_ms: u64) {
        while let Some((key, at)) = self.order.front().copied() {
            let due = at.saturating_add(AGE_MS_MAX) <= now_ms;
            if !due && self.order.len() <= CALLS_MAX && self.len <= LEN_MAX {
                return;
            }
            self.order.pop_front();
            if let Some(Known::Answered(reply)) = self.calls.remove(&key) {
                self.len -= reply.len();
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

    #[test]
    fn a_repeated_call_is_known() {
        let replies = Replies::default();
        assert_eq!(replies.look(&key(1)), None);
        replies.begin(key(1), 0);
        assert_eq!(replies.look(&key(1)), Some(Known::UnderWay));
        replies.answered(key(1), b"done", 0);
        assert_eq!(replies.look(&key(1)), Some(Known::Answered(b"done".to_vec())));
        assert_eq!(replies.look(&key(2)), None);
    }

    #[test]
    fn the_oldest_go_by_age_and_by_number() {
        let replies = Replies::default();
        for xid in 0..CALLS_MAX as u32 + 1 {
            replies.begin(key(xid), 0);
            replies.answered(key(xid), b"done", 0);
        }
        assert_eq!(replies.look(&key(0)), None);
        assert!(replies.look(&key(1)).is_some());
        replies.begin(key(7), AGE_MS_MAX);
        assert_eq!(replies.look(&key(1)), None);
        assert_eq!(replies.table.lock().len, 0);
    }
}
