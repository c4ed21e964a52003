//! CB_OFFLOAD (RFC 7862 §16.1).

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::wire_copy;
use crate::op::WriteResponse;
use crate::{Filehandle, Stateid, Status, Wire};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffloadInfo {
    Done(WriteResponse),
    Failed(Status, u64),
}

impl<'a> Wire<'a> for OffloadInfo {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match Status::decode(r)? {
            Status::OK => Self::Done(WriteResponse::decode(r)?),
            status => Self::Failed(status, r.u64()?),
        })
    }

    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Done(response) => {
                w.u32(Status::OK.0);
                response.encode(w);
            }
            Self::Failed(status, copied) => {
                w.u32(status.0);
                w.u64(*copied);
            }
        }
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        match bool::sample(s) {
            true => Self::Done(WriteResponse::sample(s)),
            false => Self::Failed(Status::NOSPC, u64::sample(s)),
        }
    }
}

wire_copy! {
    pub struct CbOffloadArgs {
        pub handle: Filehandle,
        pub stateid: Stateid,
        pub info: OffloadInfo,
    }
}
