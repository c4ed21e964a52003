//! ACCESS (RFC 8881 §18.1).

use crate::macros::{wire_bits, wire_struct};

wire_bits! {
    pub struct Access {
        READ = 1,
        LOOKUP = 2,
        MODIFY = 4,
        EXTEND = 8,
        DELETE = 0x10,
        EXECUTE = 0x20,
        /// RFC 8276 §8.3.
        XAREAD = 0x40,
        XAWRITE = 0x80,
        XALIST = 0x100,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct AccessArgs {
        pub access: Access,
    }
}

wire_struct! {
    #[derive(Copy)]
    pub struct AccessOk {
        pub supported: Access,
        pub access: Access,
    }
}
