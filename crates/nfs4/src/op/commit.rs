//! COMMIT (RFC 8881, section 18.3).

use crate::Verifier;
use crate::macros::wire_struct;

wire_struct! {
    /// `COMMIT4args`.
    #[derive(Copy)]
    pub struct CommitArgs {
        /// First byte.
        pub offset: u64,
        /// How many; zero is up to the end.
        pub count: u32,
    }
}

wire_struct! {
    /// `COMMIT4resok`.
    #[derive(Copy)]
    pub struct CommitOk {
        /// The server's life; if it is another than that of the writes, they must be sent again.
        pub verifier: Verifier,
    }
}
