//! WRITE (RFC 8881, section 18.32).

use super::IO_LEN_MAX;
use crate::macros::{wire_enum, wire_struct};
use crate::{Bytes, Stateid, Verifier};

wire_enum! {
    /// How durable written data is (`stable_how4`).
    #[derive(PartialOrd, Ord)]
    pub enum StableHow = "stable_how4" {
        /// Not until COMMIT.
        Unstable = 0,
        /// The data is.
        DataSync = 1,
        /// Data and metadata are.
        FileSync = 2,
    }
}

wire_struct! {
    /// `WRITE4args`.
    #[derive(Copy)]
    pub struct WriteArgs<'a> {
        /// An open, a lock, a delegation, or a special one.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// How durable it must be.
        pub stable: StableHow,
        /// The data.
        pub data: Bytes<'a, IO_LEN_MAX>,
    }
}

wire_struct! {
    /// `WRITE4resok`.
    #[derive(Copy)]
    pub struct WriteOk {
        /// How much was written.
        pub count: u32,
        /// How durably.
        pub committed: StableHow,
        /// The server's life.
        pub verifier: Verifier,
    }
}
