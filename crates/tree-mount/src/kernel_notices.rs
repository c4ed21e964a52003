//! Word to the kernel that something it has cached is no longer so.
//!
//! A notice may wait in the kernel for a page or directory that a request holds, and that request
//! for an answer from us; so notices are sent by a thread of their own, never by one that answers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use tokio::sync::oneshot;

use vouch_tree::inode_number::InodeNumber as NodeId;

/// Something that the kernel should forget.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A node's attributes (and access lists).
    Attributes(NodeId),
    /// A node's attributes and its cached pages: content, link target, or listing.
    Content(NodeId),
    /// What a name in a directory leads to, or that it leads nowhere.
    Name(NodeId, Box<[u8]>),
    /// Nothing; says that all before has been sent.
    Mark(oneshot::Sender<()>),
}

/// The sending end; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct KernelNotices {
    notices: mpsc::Sender<Notice>,
}

impl KernelNotices {
    /// The two ends of the way to the kernel. The receiver is given to [`run`] once there is a
    /// session.
    pub(crate) fn channel() -> (Self, mpsc::Receiver<Notice>) {
        let (notices, receiver) = mpsc::channel();
        (Self { notices }, receiver)
    }

    /// Queues a notice; returns at once.
    pub(crate) fn tell(&self, notice: Notice) {
        // Nobody listens any more when the mount is ending, and then there is no cache to correct.
        let _ = self.notices.send(notice);
    }

    /// Waits until the kernel has been told all so far, but not for ever: another file's notice may
    /// be waiting.
    pub(crate) async fn flush(&self) {
        let (mark, reached) = oneshot::channel();
        self.tell(Notice::Mark(mark));
        let _ = tokio::time::timeout(TOLD_MAX, reached).await;
    }
}

/// Sends notices until the last [`KernelNotices`] is gone.
pub(crate) fn run(notifier: Notifier, notices: mpsc::Receiver<Notice>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("vouch-notify".into()).spawn(move || {
        for notice in notices {
            let sent = match &notice {
                Notice::Mark(_) => {
                    if let Notice::Mark(mark) = notice {
                        let _ = mark.send(());
                    }
                    continue;
                }
                // A negative offset leaves the pages alone.
                Notice::Attributes(id) => notifier.inval_inode(INodeNo(id.0), -1, 0),
                Notice::Content(id) => notifier.inval_inode(INodeNo(id.0), 0, 0),
                Notice::Name(id, name) => notifier.inval_entry(INodeNo(id.0), OsStr::from_bytes(name)),
            };
            if let Err(error) = sent {
                // The session has ended (ENODEV), or the name is busy as a mount point; lookups are right all the
                // same.
                tracing::debug!(?notice, "notice to the kernel: {error}");
            }
        }
    })
}

/// How long an answer may wait for the kernel to forget what it contradicts.
const TOLD_MAX: Duration = Duration::from_secs(1);
