//! PUTFH and GETFH (RFC 8881, sections 18.19 and 18.8). The others that set or save filehandles
//! carry nothing.

use crate::Filehandle;
use crate::macros::wire_struct;

wire_struct! {
    /// `PUTFH4args`.
    #[derive(Copy)]
    pub struct PutfhArgs {
        /// The new current filehandle.
        pub handle: Filehandle,
    }
}

wire_struct! {
    /// `GETFH4resok`.
    #[derive(Copy)]
    pub struct GetfhOk {
        /// The current filehandle.
        pub handle: Filehandle,
    }
}
