//! GETATTR (RFC 8881 §18.7).

use vouch_xdr::Writer;

use super::Op;
use crate::macros::wire_struct;
use crate::{Attributes, Bitmap, Fattr, Status};

wire_struct! {
    #[derive(Copy)]
    pub struct GetattrArgs {
        pub wanted: Bitmap,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct GetattrOk<'a> {
        pub attrs: Fattr<'a>,
    }
}

impl GetattrOk<'_> {
    /// With the attributes of `wanted` that have a value in `attributes`.
    pub fn write(w: &mut Writer, wanted: Bitmap, attributes: &Attributes<'_>) {
        w.u32(Op::GETATTR.0);
        w.u32(Status::OK.0);
        attributes.encode(wanted, w);
    }
}
