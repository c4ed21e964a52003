use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use vouch_nfs4::Stateid;
use vouch_nfs4::op::ShareAccess;

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
        }
    }

    pub(crate) fn stateid(&self) -> Stateid {
        *self.stateid.lock()
    }

    pub(crate) fn set_stateid(&self, stateid: Stateid) {
        *self.stateid.lock() = stateid;
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
