//! Operations on attributes and rights.

use vouch_xdr::{Error, Reader, Writer};

use super::{Failure, Op};
use crate::macros::{wire_bits, wire_copy};
use crate::{Attributes, Bitmap, Fattr, Stateid, Status, Wire};

// ACCESS (RFC 8881 §18.1).

wire_bits! {
    pub struct Access {
        READ = 1,
        LOOKUP = 2,
        MODIFY = 4,
        EXTEND = 8,
        DELETE = 0x10,
        EXECUTE = 0x20,
        /// RFC 8276 §8.3.
        XAREAD = 0x40,
        XAWRITE = 0x80,
        XALIST = 0x100,
    }
}

wire_copy! {
    pub struct AccessArgs { pub access: Access }
    pub struct AccessOk { pub supported: Access, pub access: Access }
}

// GETATTR (RFC 8881 §18.7).

wire_copy! {
    pub struct GetattrArgs { pub wanted: Bitmap }
    pub struct GetattrOk<'a> { pub attrs: Fattr<'a> }
}

impl GetattrOk<'_> {
    /// With the attributes of `wanted` that have a value in `attributes`.
    pub fn write(w: &mut Writer, wanted: Bitmap, attributes: &Attributes<'_>) {
        w.u32(Op::GETATTR.0);
        w.u32(Status::OK.0);
        attributes.encode(wanted, w);
    }
}

// VERIFY and NVERIFY (RFC 8881 §18.31 and 18.15).

wire_copy! {
    pub struct VerifyArgs<'a> { pub attrs: Fattr<'a> }
}

// SETATTR (RFC 8881 §18.30). The result names the changed attributes even on failure.

wire_copy! {
    pub struct SetattrArgs<'a> { pub stateid: Stateid, pub attrs: Fattr<'a> }
    pub struct SetattrOk { pub attrs_set: Bitmap }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetattrFailure {
    pub status: Status,
    pub attrs_set: Bitmap,
}

impl From<Status> for SetattrFailure {
    fn from(status: Status) -> Self {
        Self { status, attrs_set: Bitmap::EMPTY }
    }
}

impl<'a> Failure<'a> for SetattrFailure {
    fn status(&self) -> Status {
        self.status
    }

    fn decode_body(status: Status, r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { status, attrs_set: Bitmap::decode(r)? })
    }

    fn encode_body(&self, w: &mut Writer) {
        self.attrs_set.encode(w);
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        Self { status: Status::ACCESS, attrs_set: Bitmap::sample(s) }
    }
}
