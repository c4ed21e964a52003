//! Compresses, hashes and stores payloads.

use std::collections::HashSet;

use parking_lot::Mutex;
use vouch_tree::{BlockHandle, FrameKind, Iv, frame};
use vouch_tree_store::{FrameSink as _, FrameSource as _, PutCounts, Writer};

use crate::error::Error;

pub(crate) struct Frames<'a> {
    writer: &'a Writer,
    iv: Iv,
    level: i32,
    /// Of a dry run, which only counts.
    counted: Option<Mutex<Counted>>,
}

#[derive(Default)]
struct Counted {
    counts: PutCounts,
    new: HashSet<BlockHandle>,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(writer: &'a Writer, level: i32, is_dry_run: bool) -> Self {
        Self { writer, iv: writer.iv(), level, counted: is_dry_run.then(Mutex::default) }
    }

    pub(crate) const fn iv(&self) -> &Iv {
        &self.iv
    }

    pub(crate) fn put(&self, kind: FrameKind, payload: &[u8]) -> Result<BlockHandle, Error> {
        let stored = frame::build(kind, payload, self.level);
        let handle = self.iv.handle_of(&stored);
        self.put_stored(&handle, &stored)?;
        Ok(handle)
    }

    /// Instead of a new frame, keeps the one that `previous` finds, if its payload is equal.
    pub(crate) fn put_or_keep(
        &self,
        kind: FrameKind,
        payload: &[u8],
        previous: impl FnOnce() -> Result<Option<BlockHandle>, Error>,
    ) -> Result<BlockHandle, Error> {
        let stored = frame::build(kind, payload, self.level);
        let handle = self.iv.handle_of(&stored);
        if !self.writer.contains(&handle)?
            && let Some(old) = previous()?
            && let Some(kept) = self.writer.get(&old)?
            && frame::open(&self.iv, &old, kind, &kept).is_ok_and(|found| *found == *payload)
        {
            self.put_stored(&old, &kept)?;
            return Ok(old);
        }
        self.put_stored(&handle, &stored)?;
        Ok(handle)
    }

    fn put_stored(&self, handle: &BlockHandle, stored: &[u8]) -> Result<(), Error> {
        let Some(counted) = &self.counted else {
            self.writer.put(handle, stored)?;
            return Ok(());
        };
        let is_known = self.writer.contains(handle)?;
        let mut counted = counted.lock();
        let is_new = !is_known && counted.new.insert(*handle);
        let PutCounts { new_frames, new_bytes, shared_frames, shared_bytes } = &mut counted.counts;
        let (frames, bytes) =
            if is_new { (new_frames, new_bytes) } else { (shared_frames, shared_bytes) };
        *frames += 1;
        *bytes += stored.len() as u64;
        Ok(())
    }

    /// Of a dry run.
    pub(crate) fn counted(&self) -> Option<PutCounts> {
        self.counted.as_ref().map(|counted| counted.lock().counts)
    }

    /// `None` if missing or damaged.
    pub(crate) fn get(
        &self,
        kind: FrameKind,
        handle: &BlockHandle,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Some(stored) = self.writer.get(handle)? else { return Ok(None) };
        Ok(frame::open(&self.iv, handle, kind, &stored).ok().map(std::borrow::Cow::into_owned))
    }
}
