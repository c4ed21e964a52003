//! Compresses, hashes and stores payloads.

use vouch_tree::{BlockHandle, FrameKind, Iv, frame};
use vouch_tree_store::{FrameSink as _, FrameSource as _, Writer};

use crate::error::Error;

pub(crate) struct Frames<'a> {
    writer: &'a Writer,
    iv: Iv,
    level: i32,
}

impl<'a> Frames<'a> {
    pub(crate) fn new(writer: &'a Writer, level: i32) -> Self {
        Self { writer, iv: writer.iv(), level }
    }

    pub(crate) const fn iv(&self) -> &Iv {
        &self.iv
    }

    pub(crate) fn put(&self, kind: FrameKind, payload: &[u8]) -> Result<BlockHandle, Error> {
        let stored = frame::build(kind, payload, self.level);
        let handle = self.iv.handle_of(&stored);
        self.writer.put(&handle, &stored)?;
        Ok(handle)
    }

    /// `None` if missing or damaged.
    pub(crate) fn get(&self, kind: FrameKind, handle: &BlockHandle) -> Result<Option<Vec<u8>>, Error> {
        let Some(stored) = self.writer.get(handle)? else { return Ok(None) };
        Ok(frame::open(&self.iv, handle, kind, &stored).ok().map(std::borrow::Cow::into_owned))
    }
}
