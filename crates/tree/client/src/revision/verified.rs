use bytes::Bytes;
use vouch_tree::frame::{self, FrameKind};
use vouch_tree::{BlockHandle, Fsinfo, Inode};

/// Its signatures are verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revision {
    /// The root of the revision.
    pub fsinfo: Fsinfo,
    /// [`vouch_tree::SignedFsinfo`] in XDR.
    pub signed: Bytes,
    /// History frame with the signed fsinfo.
    pub handle: BlockHandle,
    cert_serial: u64,
    expires: u64,
}

/// Compares certificate serials, then numbers: the next certificate overrides any number that a
/// thief signed.
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

    pub(crate) const fn old(
        fsinfo: Fsinfo,
        signed: Bytes,
        cert_serial: u64,
        expires: u64,
        handle: BlockHandle,
    ) -> Self {
        Self { fsinfo, signed, handle, cert_serial, expires }
    }

    pub(crate) fn frame_of(signed: &[u8]) -> Vec<u8> {
        frame::build(FrameKind::Fsinfo, signed, 0)
    }

    /// For comparisons.
    pub const fn order(&self) -> RevisionOrder {
        RevisionOrder { cert_serial: self.cert_serial, number: self.number(), handle: self.handle }
    }

    /// Of the signing key's certificate.
    pub const fn cert_serial(&self) -> u64 {
        self.cert_serial
    }

    /// Starts at 1. Comparable only under one certificate.
    pub const fn number(&self) -> u64 {
        self.fsinfo.revision
    }

    /// The root directory.
    pub const fn root(&self) -> &Inode {
        &self.fsinfo.root
    }

    /// Seconds since 1970.
    pub fn expires(&self) -> i64 {
        i64::try_from(self.expires).unwrap_or(i64::MAX)
    }

    /// `now`: seconds since 1970.
    pub fn is_fresh(&self, now: i64) -> bool {
        now < self.expires()
    }
}
