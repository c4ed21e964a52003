//! WRITE (RFC 8881 §18.32).

use crate::macros::{wire_copy, wire_enum};
use crate::wire::IO_LEN_MAX;
use crate::{Bytes, Stateid, Verifier};

wire_enum! {
    #[derive(PartialOrd, Ord)]
    pub enum StableHow = "stable_how4" {
        /// Not durable before COMMIT.
        Unstable = 0,
        DataSync = 1,
        /// Durable with all metadata.
        FileSync = 2,
    }
}

wire_copy! {
    pub struct WriteArgs<'a> {
        pub stateid: Stateid,
        pub offset: u64,
        pub stable: StableHow,
        pub data: Bytes<'a, IO_LEN_MAX>,
    }

    pub struct WriteOk {
        pub count: u32,
        pub committed: StableHow,
        pub verifier: Verifier,
    }
}
