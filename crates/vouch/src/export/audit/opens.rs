//! What was read and written between open and close, by each user of each client on each file: a close tells it, so that no rule need record each READ.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use parking_lot::Mutex;
use vouch_audit::operations::number;
use vouch_nfs4_server::{ExportId, Observation, Told};
use vouch_vfs::FileId;

/// All that is open.
#[derive(Default)]
pub(super) struct Opens {
    shards: [Mutex<HashMap<Key, Open>>; SHARD_COUNT],
}

type Key = (ExportId, FileId, IpAddr, u32);

struct Open {
    count: u32,
    since: Instant,
    read: u64,
    written: u64,
}

/// What a close tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) read: u64,
    pub(super) written: u64,
    pub(super) open_ns: u64,
}

impl Opens {
    /// Notes an operation; of a close, what there was since the first open that is still counted.
    pub(super) fn note(&self, operation: u16, seen: &Observation<'_>, told: &Told<'_>) -> Option<Totals> {
        let data = seen.bytes_read > 0 || seen.bytes_written > 0;
        if seen.status != 0 || !(data || matches!(operation, number::OPEN | number::CLOSE)) {
            return None;
        }
        let file = if operation == number::OPEN { told.after? } else { seen.file? };
        let key = (told.export?.id, *file, seen.connection.peer().ip(), told.caller?.uid);
        let bytes = file.as_bytes();
        let shard = bytes.iter().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte))) % SHARD_COUNT;
        let mut opens = self.shards[shard].lock();
        if operation == number::OPEN {
            if opens.len() < OPENS_MAX {
                opens.entry(key).or_insert(Open { count: 0, since: Instant::now(), read: 0, written: 0 }).count += 1;
            }
            return None;
        }
        let open = opens.get_mut(&key)?;
        open.read += seen.bytes_read;
        open.written += seen.bytes_written;
        if operation != number::CLOSE {
            return None;
        }
        let open_ns = u64::try_from(open.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let totals = Totals { read: open.read, written: open.written, open_ns };
        open.count = open.count.saturating_sub(1);
        if open.count == 0 {
            opens.remove(&key);
        }
        Some(totals)
    }
}

const SHARD_COUNT: usize = 16;
/// Opens that are counted, of each shard: beyond, closes have no totals. Those of clients that vanish are held until the server ends.
const OPENS_MAX: usize = 65_536;
