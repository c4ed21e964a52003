//! Requests for single frames, and the queues that take them to a replica.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use vouch_tree::{BlockHandle, FrameKind, Iv};

use crate::Error;
use crate::frame::Frame;

/// Limit on the queued requests of each priority. Senders wait for a place.
const QUEUE_LEN_MAX: usize = 1024;

/// Who waits for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// A reader waits.
    Foreground,
    /// Read-ahead and pull.
    Background,
}

/// A frame to be fetched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameRequest {
    pub(crate) handle: BlockHandle,
    pub(crate) iv: Iv,
    /// The kind to decode it as, off the reader's thread; `None`: leave it as it is stored.
    pub(crate) decode: Option<FrameKind>,
    /// Expected length of the frame, to size batches.
    pub(crate) len_expected: usize,
    pub(crate) priority: Priority,
}

/// A frame request in the queue of one replica.
pub(crate) struct QueuedRequest {
    pub(crate) frame: FrameRequest,
    pub(crate) answer: oneshot::Sender<Result<FetchedFrame, FetchFailure>>,
}

/// A stored frame that hashes to its handle.
#[derive(Debug, Clone)]
pub(crate) struct FetchedFrame {
    pub(crate) stored: Bytes,
    /// The frame decoded, where that was asked for.
    pub(crate) decoded: Option<Result<Frame, Error>>,
}

/// Why one replica did not deliver a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FetchFailure {
    /// It says that it has no such frame.
    Missing,
    /// It sent something else.
    Lied(String),
    /// It can't be asked.
    Failed(String),
}

/// The two queues into a replica.
pub(crate) struct Queues {
    pub(crate) foreground: mpsc::Sender<QueuedRequest>,
    pub(crate) background: mpsc::Sender<QueuedRequest>,
}

pub(crate) struct QueueEnds {
    pub(super) foreground: mpsc::Receiver<QueuedRequest>,
    pub(super) background: mpsc::Receiver<QueuedRequest>,
}

pub(crate) fn queues() -> (Queues, QueueEnds) {
    let (foreground, foreground_end) = mpsc::channel(QUEUE_LEN_MAX);
    let (background, background_end) = mpsc::channel(QUEUE_LEN_MAX);
    (Queues { foreground, background }, QueueEnds { foreground: foreground_end, background: background_end })
}
