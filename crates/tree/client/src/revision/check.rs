//! Verifies every frame of a revision, past all caches.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use vouch_tree::{BlockHandle, Content, Inode};

use crate::frame::Frame;
use crate::revision::Revision;
use crate::traversal::{PendingFrame, Visitor, traverse};
use crate::{Error, ErrorClass, Result, Tree};

const IN_FLIGHT_BYTES_MAX: u64 = 16 << 20;

const EVENTS_MAX: usize = 64;

/// An event of a full check.
#[derive(Debug, Clone)]
pub enum VerifyEvent {
    /// Sent now and then.
    Progress {
        /// Verified so far.
        frames: u64,
        /// Size as stored.
        bytes: u64,
        /// Known and not visited; grows while directories are read.
        waiting: u64,
    },
    /// No replica has it, or it cannot be decoded.
    Bad {
        /// Path of the file or directory that needs it.
        path: Vec<u8>,
        /// Why it is bad.
        error: Error,
    },
    /// The last event.
    Done {
        /// Verified.
        frames: u64,
        /// Size as stored.
        bytes: u64,
        /// Names of regular files.
        files: u64,
        /// Bad frames.
        bad: u64,
    },
}

/// Ends when dropped.
pub struct Verification {
    events: mpsc::Receiver<Result<VerifyEvent>>,
    task: AbortHandle,
}

impl Drop for Verification {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Verification {
    /// `None` at the end. An error, if no replica can be reached within one operation's time, ends
    /// the verification.
    pub async fn next(&mut self) -> Option<Result<VerifyEvent>> {
        self.events.recv().await
    }
}

impl Tree {
    /// Visits each frame once. Memory: 32 bytes per frame.
    pub fn verify_all(self: &Arc<Self>, revision: &Arc<Revision>) -> Verification {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let (tree, revision) = (Arc::clone(self), Arc::clone(revision));
        let task = self.client().runtime.spawn(async move {
            let visitor = Arc::new(CheckVisitor::new(sender.clone()));
            let root: Arc<[u8]> = Arc::from(&b""[..]);
            let first = visitor.unvisited(children_of_inode(revision.root(), &root).collect());
            let last = match traverse(&tree, &visitor, first, IN_FLIGHT_BYTES_MAX).await {
                Ok(()) => Ok(visitor.done()),
                Err(error) => Err(error),
            };
            let _ = sender.send(last).await;
        });
        Verification { events, task: task.abort_handle() }
    }
}

struct CheckVisitor {
    events: mpsc::Sender<Result<VerifyEvent>>,
    visited: Mutex<HashSet<BlockHandle>>,
    frames: AtomicU64,
    bytes: AtomicU64,
    files: AtomicU64,
    bad: AtomicU64,
}

impl CheckVisitor {
    fn new(events: mpsc::Sender<Result<VerifyEvent>>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            events,
            visited: Mutex::default(),
            frames: zero(),
            bytes: zero(),
            files: zero(),
            bad: zero(),
        }
    }

    fn done(&self) -> VerifyEvent {
        let [frames, bytes, files, bad] =
            [&self.frames, &self.bytes, &self.files, &self.bad].map(|n| n.load(Ordering::Relaxed));
        VerifyEvent::Done { frames, bytes, files, bad }
    }

    fn unvisited(&self, mut work: Vec<PendingFrame<Arc<[u8]>>>) -> Vec<PendingFrame<Arc<[u8]>>> {
        let mut visited = self.visited.lock();
        work.retain(|work| visited.insert(work.handle));
        work
    }
}

impl Visitor for CheckVisitor {
    type Context = Arc<[u8]>;

    const DECODES_LEAVES: bool = true;

    fn stored_frame(&self, _: &PendingFrame<Arc<[u8]>>) -> Result<Option<Bytes>> {
        Ok(None)
    }

    fn fetched(&self, _: &PendingFrame<Arc<[u8]>>, stored: &Bytes) -> Result<()> {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(stored.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn children(
        &self,
        work: &PendingFrame<Arc<[u8]>>,
        frame: &Frame,
    ) -> Result<Vec<PendingFrame<Arc<[u8]>>>> {
        let path = &work.context;
        let found = match frame {
            Frame::DirLeaf(page) => {
                let mut found = Vec::new();
                for entry in page.entries() {
                    self.files.fetch_add(
                        u64::from(matches!(entry.inode.content, Content::Regular { .. })),
                        Ordering::Relaxed,
                    );
                    let name = entry.name.as_bytes();
                    let path: Arc<[u8]> = if path.is_empty() {
                        Arc::from(name)
                    } else {
                        Arc::from([path, &b"/"[..], name].concat())
                    };
                    found.extend(children_of_inode(&entry.inode, &path));
                }
                found
            }
            Frame::DirInterior(page) => page
                .children()
                .iter()
                .map(|child| PendingFrame::page_child(child, page.height(), Arc::clone(path)))
                .collect(),
            Frame::Indirect(page) => {
                let children = page.children.iter().flatten();
                children
                    .map(|child| {
                        PendingFrame::indirect_child(page.child_kind(), *child, Arc::clone(path))
                    })
                    .collect()
            }
            Frame::Leaf(_) | Frame::Fsinfo(_) => Vec::new(),
        };
        Ok(self.unvisited(found))
    }

    fn failed(&self, work: &PendingFrame<Arc<[u8]>>, error: Error) -> Result<()> {
        if error.class() == ErrorClass::Unreachable {
            return Err(error);
        }
        self.bad.fetch_add(1, Ordering::Relaxed);
        let event = VerifyEvent::Bad { path: work.context.to_vec(), error: error.clone() };
        self.events.blocking_send(Ok(event)).map_err(|_| error)
    }

    fn progress(&self, waiting: u64) {
        let (frames, bytes) =
            (self.frames.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let _ = self.events.try_send(Ok(VerifyEvent::Progress { frames, bytes, waiting }));
    }
}

fn children_of_inode(
    inode: &Inode,
    path: &Arc<[u8]>,
) -> impl Iterator<Item = PendingFrame<Arc<[u8]>>> {
    let content = match &inode.content {
        Content::Regular { blob, .. } => PendingFrame::blob(blob, Arc::clone(path)),
        _ => PendingFrame::directory(inode, Arc::clone(path)),
    };
    content.into_iter().chain(PendingFrame::blob(&inode.xattrs, Arc::clone(path)))
}
