//! LOOKUP (RFC 8881 §18.13).

use crate::Name;
use crate::macros::wire_struct;

wire_struct! {
    #[derive(Copy)]
    pub struct LookupArgs<'a> {
        pub name: Name<'a>,
    }
}
