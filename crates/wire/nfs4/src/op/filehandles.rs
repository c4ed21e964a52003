//! RFC 8881 §18.19 and 18.8. The other filehandle operations have no arguments and no results.

use crate::Filehandle;
use crate::macros::wire_copy;

wire_copy! {
    pub struct PutfhArgs { pub handle: Filehandle }
    pub struct GetfhOk { pub handle: Filehandle }
}
