//! Reads that failed at their limit of time. The kernel reads ahead, and if that fails it asks once
//! more, for one page: a system call would last twice as long as its limit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use vouch_tree::inode_number::InodeNumber as NodeId;

/// The kernel's second request follows at once.
const SECOND_WITHIN: Duration = Duration::from_millis(300);

/// A file, and the process that the kernel names.
type Reader = (NodeId, u32);

#[derive(Default)]
pub(crate) struct LateReads(Mutex<HashMap<Reader, Instant>>);

impl LateReads {
    pub(crate) fn begin(&self, reader: Reader, limit: Duration) -> Read<'_> {
        Read { late: self, reader, began: Instant::now(), limit, is_answered: false }
    }

    /// True once after a late read.
    pub(crate) fn is_second(&self, reader: Reader) -> bool {
        let failed = self.0.lock().remove(&reader);
        failed.is_some_and(|failed| failed.elapsed() < SECOND_WITHIN)
    }
}

/// A read that fails unless it is answered.
pub(crate) struct Read<'a> {
    late: &'a LateReads,
    reader: Reader,
    began: Instant,
    limit: Duration,
    is_answered: bool,
}

impl Read<'_> {
    pub(crate) fn answered(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for Read<'_> {
    fn drop(&mut self) {
        if self.is_answered || self.began.elapsed() < self.limit / 2 {
            return;
        }
        let mut late = self.late.0.lock();
        late.retain(|_, failed| failed.elapsed() < SECOND_WITHIN);
        late.insert(self.reader, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_second_request_of_a_late_read_is_known() {
        let (late, reader, other) = (LateReads::default(), (NodeId(2), 7), (NodeId(2), 8));
        late.begin(reader, Duration::ZERO).answered();
        drop(late.begin(reader, Duration::from_secs(60)));
        assert!(!late.is_second(reader), "answered, or failed early");
        drop(late.begin(reader, Duration::ZERO));
        assert!(!late.is_second(other) && late.is_second(reader) && !late.is_second(reader));
    }
}
