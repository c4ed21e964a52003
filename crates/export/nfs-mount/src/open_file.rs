use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::sync::OwnedSemaphorePermit;
use vouch_nfs4::Stateid;
use vouch_nfs4::op::ShareAccess;

use crate::attributes::Known;
use crate::caller::Caller;
use crate::error::Result;
use crate::inode::Inode;

/// One open(2), with an open owner of its own.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) number: u64,
    pub(crate) inode: Arc<Inode>,
    /// Reads and writes are done with the rights of the opener.
    pub(crate) caller: Caller,
    pub(crate) owner: Vec<u8>,
    pub(crate) access: ShareAccess,
    /// O_DIRECT: a write returns when the server has the data.
    pub(crate) is_direct: bool,
    stateid: Mutex<Stateid>,
    is_lost: AtomicBool,
    content: Mutex<Option<Content>>,
}

/// A small file's content, which its open has read for the READ that follows.
#[derive(Debug)]
pub(crate) struct Content {
    bytes: Vec<u8>,
    change: u64,
    until: Instant,
    /// Number of changes by this mount before.
    changes: u64,
    _room: OwnedSemaphorePermit,
}

impl Content {
    pub(crate) fn new(
        bytes: Vec<u8>,
        known: &Known,
        (valid, changes): (Duration, u64),
        room: OwnedSemaphorePermit,
    ) -> Self {
        let until = Instant::now() + valid;
        Self { bytes, change: known.change, until, changes, _room: room }
    }
}

impl OpenFile {
    pub(crate) fn new(
        number: u64,
        inode: Arc<Inode>,
        caller: Caller,
        access: ShareAccess,
        is_direct: bool,
        stateid: Stateid,
    ) -> Self {
        Self {
            number,
            inode,
            caller,
            owner: owner_of(number),
            access,
            is_direct,
            stateid: Mutex::new(stateid),
            is_lost: AtomicBool::new(false),
            content: Mutex::default(),
        }
    }

    pub(crate) fn stateid(&self) -> Stateid {
        *self.stateid.lock()
    }

    pub(crate) fn set_stateid(&self, stateid: Stateid) {
        *self.stateid.lock() = stateid;
    }

    pub(crate) fn set_content(&self, content: Content) {
        *self.content.lock() = Some(content);
    }

    /// Once, because the kernel keeps it. `None` if the file may have changed since.
    pub(crate) fn take_content(&self, changes: u64) -> Option<Vec<u8>> {
        let content = self.content.lock().take()?;
        let is_same = content.changes == changes && content.change == self.inode.change();
        (is_same && Instant::now() < content.until).then_some(content.bytes)
    }

    /// The server has given the open or its locks to somebody else.
    pub(crate) fn set_lost(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.is_lost.load(Ordering::Acquire) {
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }
}

pub(crate) fn owner_of(number: u64) -> Vec<u8> {
    format!("open {number}").into_bytes()
}
