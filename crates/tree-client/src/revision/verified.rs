//! A verified revision.

use bytes::Bytes;
use vouch_tree::frame::{self, FrameKind};
use vouch_tree::{BlockHandle, Fsinfo, Inode};

/// A revision with verified signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// The signed content.
    pub fsinfo: Fsinfo,
    /// The signed fsinfo: [`vouch_tree::SignedFsinfo`] in XDR.
    pub signed: Bytes,
    /// Handle of the history frame with the signed fsinfo.
    pub handle: BlockHandle,
    cert_serial: u64,
    expires: u64,
}

/// Order of revisions: by certificate serial, then by number. The thief of a signing key may sign
/// any number; the next certificate overrides it. Equal only for the same signed fsinfo.
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

    pub(crate) const fn old(fsinfo: Fsinfo, signed: Bytes, cert_serial: u64, expires: u64, handle: BlockHandle) -> Self {
        Self { fsinfo, signed, handle, cert_serial, expires }
    }

    /// The history frame of a signed fsinfo. Never compressed, so that the handle is reproducible.
    pub(crate) fn frame_of(signed: &[u8]) -> Vec<u8> {
        frame::build(FrameKind::Fsinfo, signed, 0)
    }

    /// Position among all revisions of the tree: compares which of two is newer.
    pub const fn order(&self) -> RevisionOrder {
        RevisionOrder { cert_serial: self.cert_serial, number: self.number(), handle: self.handle }
    }

    pub const fn cert_serial(&self) -> u64 {
        self.cert_serial
    }

    /// Revision number, from 1. Comparable only under one certificate.
    pub const fn number(&self) -> u64 {
        self.fsinfo.revision
    }

    pub const fn root(&self) -> &Inode {
        &self.fsinfo.root
    }

    /// End of the validity, in seconds since 1970.
    pub fn expires(&self) -> i64 {
        i64::try_from(self.expires).unwrap_or(i64::MAX)
    }

    /// Whether it is valid at `now`, in seconds since 1970.
    pub fn is_fresh(&self, now: i64) -> bool {
        now < self.expires()
    }
}
