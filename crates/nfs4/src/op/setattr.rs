//! SETATTR (RFC 8881, section 18.30), whose result names what was set also when it fails.

use vouch_xdr::{Error, Reader, Writer};

use super::Failure;
use crate::macros::wire_struct;
use crate::{Bitmap, Fattr, Stateid, Status, Wire};

wire_struct! {
    /// `SETATTR4args`.
    #[derive(Copy)]
    pub struct SetattrArgs<'a> {
        /// An open for writing if the size is set, or a special one.
        pub stateid: Stateid,
        /// What to set.
        pub attrs: Fattr<'a>,
    }
}

wire_struct! {
    /// The result.
    #[derive(Copy)]
    pub struct SetattrOk {
        /// What was set.
        pub attrs_set: Bitmap,
    }
}

/// How SETATTR fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetattrFailure {
    /// Why.
    pub status: Status,
    /// What was set all the same.
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
