use std::sync::Arc;

use crate::gss;
use crate::limits::{
    REPLY_LEN_START, SEAL_COUNT_MAX, SEAL_LEN_EACH_MAX, SEND_FULL_COUNT, SEND_SOON_COUNT,
    SEND_SOON_LEN_MAX, SPARE_LONG_REPLIES_MAX, SPARE_LONG_REPLY_LEN_MAX, SPARE_REPLIES_MAX,
    SPARE_REPLY_LEN_MAX, batch_len_min,
};
use crate::transport::connection::Connection;
use crate::transport::output::Outgoing;
use crate::transport::receive::Buffers;
use crate::worker::verify_batch::BatchedRead;

pub(crate) struct WorkerScratch {
    pub(crate) buffers: Buffers,
    pub(crate) record_len_max: usize,
    pub(crate) spare: SpareReplies,
    pub(crate) ready: Vec<Outgoing>,
    pub(crate) ready_len: usize,
    pub(crate) unsealed: Vec<(Arc<Connection>, Outgoing)>,
    pub(crate) unsealed_len: usize,
    seal_len_max: usize,
    pub(crate) verify_batch: Vec<BatchedRead>,
    pub(crate) verify_batch_max: usize,
    pub(crate) batch_len_min: usize,
    /// Longest part of a call that is received or written without a look at other clients.
    pub(crate) part_len_max: usize,
}

#[derive(Default)]
pub(crate) struct SpareReplies {
    short: Vec<Vec<u8>>,
    /// A new buffer would cost a page fault for each page.
    long: Vec<Vec<u8>>,
}

impl SpareReplies {
    fn take(&mut self, long: bool) -> Vec<u8> {
        let kept = if long { self.long.pop() } else { None };
        kept.or_else(|| self.short.pop()).unwrap_or_else(|| Vec::with_capacity(REPLY_LEN_START))
    }

    pub(crate) fn give_back(&mut self, mut bytes: Vec<u8>) {
        let (list, max) = match bytes.capacity() {
            len if len <= SPARE_REPLY_LEN_MAX => (&mut self.short, SPARE_REPLIES_MAX),
            len if len <= SPARE_LONG_REPLY_LEN_MAX => (&mut self.long, SPARE_LONG_REPLIES_MAX),
            _ => return,
        };
        if list.len() < max {
            bytes.clear();
            list.push(bytes);
        }
    }
}

impl WorkerScratch {
    pub(crate) fn new(record_len_max: usize) -> Self {
        let lanes = vouch_rpcsec_gss::long_wraps();
        WorkerScratch {
            buffers: Buffers::new(record_len_max),
            record_len_max,
            spare: SpareReplies::default(),
            ready: Vec::new(),
            ready_len: 0,
            unsealed: Vec::new(),
            unsealed_len: 0,
            seal_len_max: lanes * SEAL_LEN_EACH_MAX,
            verify_batch: Vec::new(),
            verify_batch_max: lanes,
            batch_len_min: batch_len_min(lanes),
            part_len_max: usize::MAX,
        }
    }

    pub(crate) fn is_verify_batch_full(&self) -> bool {
        self.verify_batch.len() >= self.verify_batch_max
    }

    pub(crate) fn reply(&mut self, connection: &Connection) -> Vec<u8> {
        self.spare.take(connection.long_replies())
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) {
        self.ready_len += outgoing.len();
        self.ready.push(outgoing);
    }

    pub(crate) fn push_for(&mut self, connection: &Arc<Connection>, outgoing: Outgoing) {
        if outgoing.is_ready() {
            return self.push(outgoing);
        }
        connection.set_long_replies(outgoing.len() > SPARE_REPLY_LEN_MAX);
        self.unsealed_len += outgoing.len();
        self.unsealed.push((connection.clone(), outgoing));
        if self.unsealed.len() >= SEAL_COUNT_MAX || self.unsealed_len >= self.seal_len_max {
            self.seal();
        }
    }

    /// Long replies use the vector lanes well only together, so they are not counted.
    pub(crate) fn is_worth_sending(&self) -> bool {
        self.ready.len() + self.unsealed.len() >= SEND_SOON_COUNT
            && self.unsealed_len <= SEND_SOON_LEN_MAX
    }

    /// A client that has sent nothing since may wait for its replies.
    pub(crate) fn send_if_awaited(&mut self, connection: &Connection) {
        if connection.has_no_input() {
            self.flush(connection);
            self.seal();
        }
    }

    /// Replies that fill the vector lanes leave after each read, so that client and server overlap.
    pub(crate) fn seal_full_batch(&mut self) {
        if self.unsealed.len() >= SEND_FULL_COUNT && self.unsealed_len <= SEND_SOON_LEN_MAX {
            self.seal();
        }
    }

    pub(crate) fn push_durable(&mut self, connection: &Arc<Connection>, outgoing: Outgoing) {
        self.push_for(connection, outgoing);
        connection.end_waiting();
    }

    pub(crate) fn seal(&mut self) {
        if self.unsealed.is_empty() {
            return;
        }
        self.unsealed_len = 0;
        let mut unsealed = std::mem::take(&mut self.unsealed);
        gss::seal_all(unsealed.iter_mut().map(|(_, outgoing)| outgoing));
        let mut sealed = unsealed.drain(..).peekable();
        while let Some((connection, first)) = sealed.next() {
            let same = std::iter::from_fn(|| {
                sealed
                    .next_if(|(other, _)| Arc::ptr_eq(other, &connection))
                    .map(|(_, outgoing)| outgoing)
            });
            connection
                .send(std::iter::once(first).chain(same), |bytes| self.spare.give_back(bytes));
        }
        drop(sealed);
        self.unsealed = unsealed;
    }

    pub(crate) fn flush(&mut self, connection: &Connection) {
        if self.ready.is_empty() {
            return;
        }
        self.ready_len = 0;
        let mut ready = std::mem::take(&mut self.ready);
        connection.send(ready.drain(..), |bytes| self.spare.give_back(bytes));
        self.ready = ready;
    }
}
