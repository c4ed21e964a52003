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
    cert_serial: u64,
    expires: u64,
}

/// Where a revision stands among all of its tree: what was signed under a later certificate comes
/// after all that was signed under those before it, whatever its number, for a thief of a signing
/// key may sign any number. Equal only for the same signed fsinfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevisionOrder {
    cert_serial: u64,
    number: u64,
    handle: BlockHandle,
}

impl Revision {
    pub(crate) fn new(fsinfo: Fsinfo, signed: Bytes, cert_serial: u64, expires: u64) -> Self {
        let handle = fsinfo.iv.handle_of(&Self::frame_of(&signed));
        Self { fsinfo, signed, handle, cert_serial, expires }
    }

    /// One out of the history, from the frame with this handle.
    pub(crate) const fn old(fsinfo: Fsinfo, signed: Bytes, cert_serial: u64, expires: u64, handle: BlockHandle) -> Self {
        Self { fsinfo, signed, handle, cert_serial, expires }
    }

    /// The frame in which a signed fsinfo is kept: raw, so that its handle follows from it.
    pub(crate) fn frame_of(signed: &[u8]) -> Vec<u8> {
        frame::build(FrameKind::Fsinfo, signed, 0)
    }

    /// Where it stands among all revisions of its tree. Only this tells which of two is newer.
    pub const fn order(&self) -> RevisionOrder {
        RevisionOrder { cert_serial: self.cert_serial, number: self.number(), handle: self.handle }
    }

    /// The serial of the certificate of the key that signed it.
    pub const fn cert_serial(&self) -> u64 {
        self.cert_serial
    }

    /// Its number, from 1; for people, and within one certificate.
    pub const fn number(&self) -> u64 {
        self.fsinfo.revision
    }

    /// The root directory.
    pub const fn root(&self) -> &Inode {
        &self.fsinfo.root
    }

    /// The first second since 1970 at which it is no longer valid: the end of its duration or of
    /// its certificate.
    pub fn expires(&self) -> i64 {
        i64::try_from(self.expires).unwrap_or(i64::MAX)
    }

    /// Whether it is still valid at `now`, in seconds since 1970.
    pub fn is_fresh(&self, now: i64) -> bool {
        now < self.expires()
    }
}
