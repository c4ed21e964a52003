//! CLONE (RFC 7862, section 15.13).

use crate::Stateid;
use crate::macros::wire_struct;

wire_struct! {
    /// `CLONE4args`. The saved filehandle is the source.
    #[derive(Copy)]
    pub struct CloneArgs {
        /// An open of the source for reading.
        pub source: Stateid,
        /// An open of the destination for writing.
        pub destination: Stateid,
        /// Where to read.
        pub source_offset: u64,
        /// Where to write.
        pub destination_offset: u64,
        /// How much; zero is up to the end.
        pub count: u64,
    }
}
