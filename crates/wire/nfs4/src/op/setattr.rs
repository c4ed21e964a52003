//! SETATTR (RFC 8881 §18.30). The result names the changed attributes even on failure.

use vouch_xdr::{Error, Reader, Writer};

use super::Failure;
use crate::macros::wire_struct;
use crate::{Bitmap, Fattr, Stateid, Status, Wire};

wire_struct! {
    #[derive(Copy)]
    pub struct SetattrArgs<'a> {
        pub stateid: Stateid,
        pub attrs: Fattr<'a>,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct SetattrOk {
        pub attrs_set: Bitmap,
    }
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
