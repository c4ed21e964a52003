//! COMMIT (RFC 8881 §18.3).

use crate::Verifier;
use crate::macros::wire_struct;

wire_struct! {
    #[derive(Copy)]
    pub struct CommitArgs {
        pub offset: u64,
        /// Zero means up to the end of the file.
        pub count: u32,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct CommitOk {
        /// If it differs from a WRITE's, the client must repeat the WRITE.
        pub verifier: Verifier,
    }
}
