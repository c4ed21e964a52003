//! The two interfaces of every store, a source and a sink of frames, and what is counted at the
//! sink.

use vouch_tree::{BlockHandle, FRAME_LEN_MAX, FrameKind};

use crate::{Error, Result};

/// Where frames come from.
pub trait FrameSource: Send + Sync {
    /// The stored frame, or `None` when this store lacks it. Not verified:
    /// [`vouch_tree::frame::open`] does that.
    fn get(&self, handle: &BlockHandle) -> Result<Option<Vec<u8>>>;
}

/// Where frames go to. Any number of threads may put at once.
pub trait FrameSink: Send + Sync {
    /// Whether the frame is there.
    fn contains(&self, handle: &BlockHandle) -> Result<bool>;

    /// Stores a frame unless it is there; true when it is new. The caller vouches for `handle ==
    /// iv.handle_of(frame)`.
    ///
    /// # Errors
    /// [`Error::Frame`] for bytes that no frame can be.
    fn put(&self, handle: &BlockHandle, frame: &[u8]) -> Result<bool>;
}

/// What was put: frames and their bytes, those new to the store apart from those that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutCounts {
    /// Frames that were not there before.
    pub new_frames: u64,
    /// Their stored bytes, compressed as they are.
    pub new_bytes: u64,
    /// Puts of frames that were there.
    pub shared_frames: u64,
    /// Their stored bytes.
    pub shared_bytes: u64,
}

/// How far a long operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, in one or two words.
    pub stage: &'static str,
    /// Units done: frames while marking, bytes else.
    pub done: u64,
    /// Units in all, where that is known beforehand.
    pub total: Option<u64>,
}

/// Told about progress, from several threads, some times a second.
pub type ProgressFn<'a> = dyn Fn(Progress) + Sync + 'a;

/// The kind of a frame that may be stored.
pub(crate) fn checked_kind(frame: &[u8]) -> Result<FrameKind> {
    if frame.len() < FRAME_LEN_MIN {
        return Err(Error::Frame("shorter than its two bytes of header"));
    }
    if frame.len() > FRAME_LEN_MAX {
        return Err(Error::Frame("longer than 128 KiB and its header"));
    }
    vouch_tree::frame::kind_of(frame).ok_or(Error::Frame("its first byte names no kind"))
}

/// A frame's own header: kind and codec.
pub(crate) const FRAME_LEN_MIN: usize = 2;
