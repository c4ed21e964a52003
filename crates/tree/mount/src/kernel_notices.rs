//! A notice may wait for a page that a request holds, and that request for our answer: so a thread
//! of its own sends notices.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{INodeNo, Notifier};
use tokio::sync::oneshot;

use vouch_tree::inode_number::InodeNumber as NodeId;

#[derive(Debug)]
pub(crate) enum Notice {
    Attributes(NodeId),
    Content(NodeId),
    Name(NodeId, Box<[u8]>),
    Flush(oneshot::Sender<()>),
}

#[derive(Debug, Clone)]
pub(crate) struct KernelNotices {
    notices: mpsc::Sender<Notice>,
}

impl KernelNotices {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<Notice>) {
        let (notices, receiver) = mpsc::channel();
        (Self { notices }, receiver)
    }

    pub(crate) fn send(&self, notice: Notice) {
        let _ = self.notices.send(notice);
    }

    /// Limited in time: a notice may block.
    pub(crate) async fn flush(&self) {
        let (mark, reached) = oneshot::channel();
        self.send(Notice::Flush(mark));
        let _ = tokio::time::timeout(FLUSH_MAX, reached).await;
    }
}

pub(crate) fn run(
    notifier: Notifier,
    notices: mpsc::Receiver<Notice>,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("vouch-notify".into()).spawn(move || {
        for notice in notices {
            let sent = match &notice {
                Notice::Flush(_) => {
                    if let Notice::Flush(mark) = notice {
                        let _ = mark.send(());
                    }
                    continue;
                }
                Notice::Attributes(id) => notifier.inval_inode(INodeNo(id.0), -1, 0),
                Notice::Content(id) => notifier.inval_inode(INodeNo(id.0), 0, 0),
                Notice::Name(id, name) => {
                    notifier.inval_entry(INodeNo(id.0), OsStr::from_bytes(name))
                }
            };
            if let Err(error) = sent {
                // The session has ended (ENODEV), or the name is a busy mount point.
                tracing::debug!(?notice, "notice to the kernel: {error}");
            }
        }
    })
}

const FLUSH_MAX: Duration = Duration::from_secs(1);
