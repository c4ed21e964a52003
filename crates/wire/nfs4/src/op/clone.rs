//! CLONE (RFC 7862 §15.13).

use crate::Stateid;
use crate::macros::wire_struct;

wire_struct! {
    /// The saved filehandle is the source.
    #[derive(Copy)]
    pub struct CloneArgs {
        pub source: Stateid,
        pub destination: Stateid,
        pub source_offset: u64,
        pub destination_offset: u64,
        pub count: u64,
    }
}
