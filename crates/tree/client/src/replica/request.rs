use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use vouch_tree::{BlockHandle, FrameKind, Iv};

use crate::Error;
use crate::frame::Frame;

const QUEUE_LEN_MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    Foreground,
    Background,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameRequest {
    pub(crate) handle: BlockHandle,
    pub(crate) iv: Iv,
    /// Decodes off the reader's thread; `None`: not decoded.
    pub(crate) decode: Option<FrameKind>,
    pub(crate) len_expected: usize,
    pub(crate) priority: Priority,
}

pub(crate) struct QueuedRequest {
    pub(crate) frame: FrameRequest,
    pub(crate) answer: oneshot::Sender<Result<FetchedFrame, FetchFailure>>,
}

#[derive(Debug, Clone)]
pub(crate) struct FetchedFrame {
    pub(crate) stored: Bytes,
    pub(crate) decoded: Option<Result<Frame, Error>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FetchFailure {
    Missing,
    Lied(String),
    Failed(String),
}

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
    (
        Queues { foreground, background },
        QueueEnds { foreground: foreground_end, background: background_end },
    )
}
