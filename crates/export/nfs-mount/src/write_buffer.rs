//! Written data that the server does not have durably yet.
//!
//! write(2) returns when the data is here. WRITE sends it unstable, in the background; fsync(2) and
//! close(2) wait for COMMIT. The data stays here until then: if the server has restarted meanwhile,
//! its write verifier differs, and the data is sent again (RFC 8881 §18.3.3).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use vouch_nfs4::Verifier;

use crate::error::Result;
use crate::open_file::OpenFile;

/// Of one file.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    state: Mutex<Dirty>,
    progress: Notify,
    has_written: AtomicBool,
}

#[derive(Debug, Default)]
struct Dirty {
    /// Grows while writes follow each other.
    filling: Option<Extent>,
    sending: Vec<Range<u64>>,
    unstable: Vec<(Extent, Verifier)>,
    /// For the next fsync(2) or close(2).
    error: Option<Errno>,
}

/// Data of adjacent writes.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) offset: u64,
    bytes: Vec<u8>,
    /// Bytes of the request before the data.
    head_len: usize,
    permit: OwnedSemaphorePermit,
}

impl Extent {
    pub(crate) fn new(
        file: Arc<OpenFile>,
        offset: u64,
        bytes: Vec<u8>,
        head_len: usize,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { file, offset, bytes, head_len, permit }
    }

    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.head_len..]
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.data().len() as u64
    }

    /// True if `next` is now part of this extent.
    fn absorb(&mut self, next: &mut Option<Extent>, len_max: usize) {
        let Some(more) = next else { return };
        let is_adjacent = more.offset == self.range().end
            && more.file.number == self.file.number
            && self.data().len() + more.data().len() <= len_max;
        if is_adjacent && let Some(more) = next.take() {
            self.bytes.extend_from_slice(more.data());
            self.permit.merge(more.permit);
        }
    }
}

/// The next step of a flush.
#[derive(Debug)]
pub(crate) enum Step {
    Clean,
    /// Others are sending.
    Wait,
    Send(Extent),
    /// The only data: stable at once, without COMMIT.
    SendStable(Extent),
    Commit(Vec<(Extent, Verifier)>),
}

/// The outcome of [`WriteBuffer::add`].
#[derive(Debug)]
pub(crate) enum Added {
    Kept,
    /// Send this extent now; it is marked as being sent.
    Send(Extent),
    /// Send the first, then add the second again.
    Displaced(Extent, Extent),
    /// An overlapping range is being sent. Wait, then add it again.
    Overlaps(Extent),
}

impl WriteBuffer {
    pub(crate) fn add(&self, extent: Extent, len_max: usize) -> Added {
        let mut state = self.state.lock();
        let mut next = Some(extent);
        if let Some(filling) = &mut state.filling {
            filling.absorb(&mut next, len_max);
            if next.is_none() && filling.data().len() < len_max {
                return Added::Kept;
            }
        }
        match (state.filling.take(), next) {
            (Some(full), None) => {
                state.sending.push(full.range());
                Added::Send(full)
            }
            (Some(other), Some(extent)) => {
                state.sending.push(other.range());
                Added::Displaced(other, extent)
            }
            (None, Some(extent)) => {
                let range = extent.range();
                if state.sending.iter().any(|sent| overlaps(sent, &range)) {
                    return Added::Overlaps(extent);
                }
                if extent.data().len() < len_max {
                    state.filling = Some(extent);
                    return Added::Kept;
                }
                state.sending.push(range);
                Added::Send(extent)
            }
            (None, None) => Added::Kept,
        }
    }

    /// `commit`: up to durability, else until the server has the data.
    pub(crate) fn step(&self, commit: bool) -> Step {
        let mut state = self.state.lock();
        let is_alone = state.sending.is_empty() && state.unstable.is_empty();
        if let Some(extent) = state.filling.take() {
            state.sending.push(extent.range());
            return if commit && is_alone { Step::SendStable(extent) } else { Step::Send(extent) };
        }
        if !state.sending.is_empty() {
            return Step::Wait;
        }
        if !commit || state.unstable.is_empty() {
            return Step::Clean;
        }
        // Other flushes wait for this one.
        state.sending.push(COMMITTING);
        Step::Commit(std::mem::take(&mut state.unstable))
    }

    /// `outcome`: the verifier of unstable data.
    pub(crate) fn sent(&self, extent: Extent, outcome: Result<Option<Verifier>>) {
        let mut state = self.state.lock();
        state.end(&extent.range());
        match outcome {
            Ok(Some(verifier)) => state.unstable.push((extent, verifier)),
            Ok(None) => {}
            Err(error) => state.error = Some(error),
        }
        self.mark_written();
        drop(state);
        self.progress.notify_waiters();
    }

    pub(crate) fn committed(&self, outcome: Result<()>) {
        let mut state = self.state.lock();
        state.end(&COMMITTING);
        if let Err(error) = outcome {
            state.error = Some(error);
        }
        drop(state);
        self.progress.notify_waiters();
    }

    /// Wakes when a range is sent or committed. Enable it before [`Self::step`] or [`Self::add`].
    pub(crate) fn progress(&self) -> tokio::sync::futures::Notified<'_> {
        self.progress.notified()
    }

    /// The server lacks data that write(2) has accepted.
    pub(crate) fn is_dirty(&self) -> bool {
        let state = self.state.lock();
        state.filling.is_some() || !state.sending.is_empty()
    }

    pub(crate) fn is_committed(&self) -> bool {
        let state = self.state.lock();
        state.filling.is_none() && state.sending.is_empty() && state.unstable.is_empty()
    }

    pub(crate) fn take_error(&self) -> Result<()> {
        self.state.lock().error.take().map_or(Ok(()), Err)
    }

    pub(crate) fn mark_written(&self) {
        self.has_written.store(true, Ordering::Relaxed);
    }

    /// This client wrote since the last call, so that a new change id is its own.
    pub(crate) fn take_written(&self) -> bool {
        self.has_written.swap(false, Ordering::Relaxed)
    }
}

impl Dirty {
    fn end(&mut self, range: &Range<u64>) {
        if let Some(at) = self.sending.iter().position(|sent| sent == range) {
            self.sending.swap_remove(at);
        }
    }
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Empty, so that it overlaps no write.
const COMMITTING: Range<u64> = 0..0;

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::caller::Caller;
    use crate::inode::tests::table;
    use tokio::sync::Semaphore;
    use vouch_nfs4::Stateid;
    use vouch_nfs4::op::ShareAccess;

    /// Extents of one mount share it.
    static BUDGET: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(100)));

    fn extent(offset: u64, len: usize) -> Extent {
        let (_, inode) = table();
        let (caller, stateid) = (Caller::default(), Stateid::default());
        let file = OpenFile::new(1, inode, caller, ShareAccess::BOTH, false, stateid);
        let permit = BUDGET.clone().try_acquire_owned().unwrap();
        Extent::new(Arc::new(file), offset, vec![7; len + 2], 2, permit)
    }

    #[test]
    fn adjacent_writes_are_sent_together() {
        let buffer = WriteBuffer::default();
        assert!(matches!(buffer.add(extent(0, 4), 8), Added::Kept));
        let Added::Send(full) = buffer.add(extent(4, 4), 8) else { panic!("full") };
        assert_eq!((full.range(), full.data()), (0..8, &[7; 8][..]));
        assert!(buffer.is_dirty());
        buffer.sent(full, Ok(Some(Verifier([1; 8]))));
        assert!(!buffer.is_dirty() && !buffer.is_committed());
    }

    #[test]
    fn overlapping_write_waits_for_the_earlier_one() {
        let buffer = WriteBuffer::default();
        buffer.add(extent(0, 4), 8);
        let Added::Displaced(first, second) = buffer.add(extent(2, 4), 8) else { panic!("apart") };
        let Added::Overlaps(second) = buffer.add(second, 8) else { panic!("overlap") };
        buffer.sent(first, Ok(None));
        assert!(matches!(buffer.add(second, 8), Added::Kept));
    }

    #[test]
    fn single_extent_is_stable_at_once_and_others_are_committed() {
        let buffer = WriteBuffer::default();
        buffer.add(extent(0, 4), 8);
        let Step::SendStable(only) = buffer.step(true) else { panic!("stable") };
        assert!(matches!(buffer.step(true), Step::Wait));
        buffer.sent(only, Ok(None));
        assert!(matches!(buffer.step(true), Step::Clean));

        buffer.add(extent(0, 4), 8);
        let Step::Send(sent) = buffer.step(false) else { panic!("unstable") };
        buffer.sent(sent, Ok(Some(Verifier([1; 8]))));
        let Step::Commit(list) = buffer.step(true) else { panic!("commit") };
        assert_eq!(list.len(), 1);
        assert!(matches!(buffer.step(true), Step::Wait));
        buffer.committed(Err(Errno::NOSPC));
        assert_eq!((buffer.take_error(), buffer.take_error()), (Err(Errno::NOSPC), Ok(())));
    }
}
