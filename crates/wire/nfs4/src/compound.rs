//! The receiver limits the number of operations.

use vouch_xdr::{Error, Reader, Writer};

use crate::{Status, Wire};

/// RFC 8881 sets no limit; clients use tags as notes in packet traces.
pub(crate) const TAG_LEN_MAX: usize = 1024;

/// The fields of `COMPOUND4args` before the `count` operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompoundHead<'a> {
    pub tag: &'a [u8],
    pub minor: u32,
    /// Claimed by the caller, not verified.
    pub count: u32,
}

impl<'a> CompoundHead<'a> {
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { tag: r.opaque(TAG_LEN_MAX)?, minor: r.u32()?, count: r.u32()? })
    }

    /// Returns the position of the count, for [`Writer::set_u32`].
    pub fn encode(&self, w: &mut Writer) -> usize {
        w.opaque(self.tag);
        w.u32(self.minor);
        w.u32(self.count);
        w.len() - 4
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallbackHead<'a> {
    pub tag: &'a [u8],
    pub minor: u32,
    pub ident: u32,
    /// Claimed by the caller, not verified.
    pub count: u32,
}

impl<'a> CallbackHead<'a> {
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { tag: r.opaque(TAG_LEN_MAX)?, minor: r.u32()?, ident: r.u32()?, count: r.u32()? })
    }

    /// Returns the position of the count, for [`Writer::set_u32`].
    pub fn encode(&self, w: &mut Writer) -> usize {
        w.opaque(self.tag);
        [self.minor, self.ident, self.count].into_iter().for_each(|word| w.u32(word));
        w.len() - 4
    }
}

/// Of COMPOUND or CB_COMPOUND.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHead<'a> {
    pub status: Status,
    pub tag: &'a [u8],
    /// Claimed by the sender, not verified.
    pub count: u32,
}

impl<'a> ReplyHead<'a> {
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { status: Status::decode(r)?, tag: r.opaque(TAG_LEN_MAX)?, count: r.u32()? })
    }

    pub fn encode(&self, w: &mut Writer) {
        w.u32(self.status.0);
        w.opaque(self.tag);
        w.u32(self.count);
    }
}

/// Writes the head before status and count are known.
#[derive(Clone, Copy, Debug)]
#[must_use = "the head is complete only after `finish`"]
pub struct ReplyWriter {
    status_at: usize,
    count_at: usize,
}

impl ReplyWriter {
    pub fn begin(w: &mut Writer, tag: &[u8]) -> Self {
        let status_at = w.len();
        w.u32(0);
        w.opaque(tag);
        w.u32(0);
        Self { status_at, count_at: w.len() - 4 }
    }

    /// `status`: of the last operation.
    pub fn finish(self, w: &mut Writer, status: Status, count: u32) {
        w.set_u32(self.status_at, status.0);
        w.set_u32(self.count_at, count);
    }
}
