//! Interfaces of stores: frame source and frame sink.

use vouch_tree::{BlockHandle, FRAME_LEN_MAX, FrameKind};

use crate::{Error, Result};

pub trait FrameSource: Send + Sync {
    /// The stored frame, or `None` if missing.
    fn get(&self, handle: &BlockHandle) -> Result<Option<Vec<u8>>>;
}

/// Sink of frames, usable by many threads.
pub trait FrameSink: Send + Sync {
    fn contains(&self, handle: &BlockHandle) -> Result<bool>;

    /// Stores a frame unless it is present. Returns whether it is new. The caller ensures that
    /// `handle == iv.handle_of(frame)`.
    ///
    /// # Errors
    /// [`Error::Frame`] for bytes that are not a valid frame.
    fn put(&self, handle: &BlockHandle, frame: &[u8]) -> Result<bool>;
}

/// Counts of stored frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutCounts {
    /// Frames that did not exist before.
    pub new_frames: u64,
    /// Their stored bytes, after compression.
    pub new_bytes: u64,
    pub shared_frames: u64,
    pub shared_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Current stage, in one or two words.
    pub stage: &'static str,
    /// Units done: frames while marking, otherwise bytes.
    pub done: u64,
    /// Total units, if known.
    pub total: Option<u64>,
}

/// Progress callback, called by several threads a few times a second.
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

/// Length of a frame's header: kind and codec.
pub(crate) const FRAME_LEN_MIN: usize = 2;
