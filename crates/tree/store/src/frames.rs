use vouch_tree::{BlockHandle, FRAME_LEN_MAX, FrameKind};

use crate::{Error, Result};

pub trait FrameSource: Send + Sync {
    fn get(&self, handle: &BlockHandle) -> Result<Option<Vec<u8>>>;
}

pub trait FrameSink: Send + Sync {
    fn contains(&self, handle: &BlockHandle) -> Result<bool>;

    /// True if the frame is new. The caller ensures that `handle == iv.handle_of(frame)`.
    ///
    /// # Errors
    /// [`Error::Frame`]: not a valid frame.
    fn put(&self, handle: &BlockHandle, frame: &[u8]) -> Result<bool>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutCounts {
    pub new_frames: u64,
    /// Size after compression.
    pub new_bytes: u64,
    pub shared_frames: u64,
    pub shared_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub stage: &'static str,
    /// Frames while marking, otherwise bytes.
    pub done: u64,
    /// `None` if unknown.
    pub total: Option<u64>,
}

/// Called by several threads a few times a second.
pub type ProgressFn<'a> = dyn Fn(Progress) + Sync + 'a;

pub(crate) fn checked_kind(frame: &[u8]) -> Result<FrameKind> {
    if frame.len() < FRAME_LEN_MIN {
        return Err(Error::Frame("shorter than its two bytes of header"));
    }
    if frame.len() > FRAME_LEN_MAX {
        return Err(Error::Frame("longer than 128 KiB and its header"));
    }
    vouch_tree::frame::kind_of(frame).ok_or(Error::Frame("its first byte names no kind"))
}

pub(crate) const FRAME_LEN_MIN: usize = 2;
