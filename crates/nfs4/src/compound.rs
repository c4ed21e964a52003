//! What stands before the operations of a compound and of its reply. How many operations are
//! allowed is the receiver's to say.

use vouch_xdr::{Error, Reader, Writer};

use crate::{Status, Wire};

/// Longest tag. RFC 8881 leaves it open; clients use it as a note for people who read traces.
pub const TAG_LEN_MAX: usize = 1024;

/// The head of a COMPOUND (`COMPOUND4args` up to the operations, `count` of which follow).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompoundHead<'a> {
    /// A note that the reply repeats.
    pub tag: &'a [u8],
    /// The minor version.
    pub minor: u32,
    /// How many operations are said to follow; not yet believed.
    pub count: u32,
}

impl<'a> CompoundHead<'a> {
    /// Reads it.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { tag: r.opaque(TAG_LEN_MAX)?, minor: r.u32()?, count: r.u32()? })
    }

    /// Appends it, and returns where the count stands, to be set by [`Writer::set_u32`] when it is
    /// known.
    pub fn encode(&self, w: &mut Writer) -> usize {
        w.opaque(self.tag);
        w.u32(self.minor);
        w.u32(self.count);
        w.len() - 4
    }
}

/// The head of a CB_COMPOUND.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallbackHead<'a> {
    /// A note that the reply repeats.
    pub tag: &'a [u8],
    /// The minor version.
    pub minor: u32,
    /// What SETCLIENTID gave (4.0); zero in 4.1.
    pub ident: u32,
    /// How many operations are said to follow; not yet believed.
    pub count: u32,
}

impl<'a> CallbackHead<'a> {
    /// Reads it.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { tag: r.opaque(TAG_LEN_MAX)?, minor: r.u32()?, ident: r.u32()?, count: r.u32()? })
    }

    /// Appends it, and returns where the count stands, to be set by [`Writer::set_u32`] when it is
    /// known.
    pub fn encode(&self, w: &mut Writer) -> usize {
        w.opaque(self.tag);
        [self.minor, self.ident, self.count].into_iter().for_each(|word| w.u32(word));
        w.len() - 4
    }
}

/// The head of a reply to either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHead<'a> {
    /// The status of the last operation.
    pub status: Status,
    /// The call's tag.
    pub tag: &'a [u8],
    /// How many results are said to follow; not yet believed.
    pub count: u32,
}

impl<'a> ReplyHead<'a> {
    /// Reads it.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { status: Status::decode(r)?, tag: r.opaque(TAG_LEN_MAX)?, count: r.u32()? })
    }

    /// Appends it.
    pub fn encode(&self, w: &mut Writer) {
        w.u32(self.status.0);
        w.opaque(self.tag);
        w.u32(self.count);
    }
}

/// Writes the head of a reply before status and count are known.
#[derive(Clone, Copy, Debug)]
#[must_use = "the head is whole only after `finish`"]
pub struct ReplyWriter {
    status_at: usize,
    count_at: usize,
}

impl ReplyWriter {
    /// Appends the head; the results follow.
    pub fn begin(w: &mut Writer, tag: &[u8]) -> Self {
        let status_at = w.len();
        w.u32(0);
        w.opaque(tag);
        w.u32(0);
        Self { status_at, count_at: w.len() - 4 }
    }

    /// Fills in the status of the last operation and how many results were appended.
    pub fn finish(self, w: &mut Writer, status: Status, count: u32) {
        w.set_u32(self.status_at, status.0);
        w.set_u32(self.count_at, count);
    }
}
