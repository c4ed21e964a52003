//! A revision that was believed.

use bytes::Bytes;
use vouch_tree::frame::{self, FrameKind};
use vouch_tree::{BlockHandle, Fsinfo, Inode};

/// One revision of a tree, with its signatures verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// What was signed.
    pub fsinfo: Fsinfo,
    /// The signed fsinfo as it came: [`vouch_tree::SignedFsinfo`] in XDR.
    pub signed: Bytes,
    /// The handle of the frame that keeps it as history.
    pub handle: BlockHandle,
    expires: u64,
}

impl Revision {
    pub(crate) fn new(fsinfo: Fsinfo, signed: Bytes, expires: u64) -> Self {
        let handle = fsinfo.iv.handle_of(&Self::frame_of(&signed));
        Self { fsinfo, signed, handle, expires }
    }

    /// One out of the history, from the frame with this handle.
    pub(crate) const fn old(fsinfo: Fsinfo, signed: Bytes, expires: u64, handle: BlockHandle) -> Self {
        Self { fsinfo, signed, handle, expires }
    }

    /// The frame in which a signed fsinfo is kept: raw, so that its handle follows from it.
    pub(crate) fn frame_of(signed: &[u8]) -> Vec<u8> {
        frame::build(FrameKind::Fsinfo, signed, 0)
    }

    /// Its number, from 1.
    pub const fn number(&self) -> u64 {
        self.fsinfo.revision
    }

    /// The root directory.
    pub const fn root(&self) -> &Inode {
        &self.fsinfo.root
    }

    /// The first second since 1970 at which it is no longer valid: the end of its duration or of its certificate.
    pub fn expires(&self) -> i64 {
        i64::try_from(self.expires).unwrap_or(i64::MAX)
    }

    /// Whether it is still valid at `now`, in seconds since 1970.
    pub fn is_fresh(&self, now: i64) -> bool {
        now < self.expires()
    }
}
