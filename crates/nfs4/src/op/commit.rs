//! COMMIT (RFC 8881, section 18.3).

use crate::Verifier;
use crate::macros::wire_struct;

wire_struct! {
    #[derive(Copy)]
    pub struct CommitArgs {
        pub offset: u64,
        /// Number of bytes; zero means up to the end of the file.
        pub count: u32,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct CommitOk {
        /// Write verifier of the server instance. If it differs from the verifier of a WRITE, the
        /// client must repeat the WRITE.
        pub verifier: Verifier,
    }
}
