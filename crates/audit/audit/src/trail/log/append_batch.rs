//! Neighbouring records share hash computations.

use super::Log;
use crate::frame::{BODY_LEN_MAX, Kind, LeafBatch};
use crate::record;

impl Log {
    /// Appends several records faster than one at a time.
    pub fn append_batch(&mut self) -> AppendBatch<'_> {
        let buffer = self.buffers.back_mut().expect("one segment is always open");
        let leaves = LeafBatch {
            out: &mut buffer.pending,
            chain: &mut self.chain,
            tree: &mut buffer.tree,
            last: None,
        };
        AppendBatch { next_seq: &mut self.next_seq, unsealed_ns: &mut buffer.unsealed_ns, leaves }
    }
}

/// The batch ends when dropped.
pub struct AppendBatch<'l> {
    next_seq: &'l mut u64,
    unsealed_ns: &'l mut Option<u64>,
    leaves: LeafBatch<'l>,
}

impl AppendBatch<'_> {
    /// `body`: an encoded record, which gets its number. Returns the number.
    pub fn append(&mut self, body: &mut [u8], now_ns: u64) -> u64 {
        debug_assert!(body.len() <= BODY_LEN_MAX, "text limits keep bodies below the frame limit");
        let seq = *self.next_seq;
        record::set_seq(body, seq);
        *self.next_seq += 1;
        self.leaves.append(Kind::Record, body);
        self.unsealed_ns.get_or_insert(now_ns);
        seq
    }
}
