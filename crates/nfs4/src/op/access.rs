//! ACCESS (RFC 8881, section 18.1).

use crate::macros::{wire_bits, wire_struct};

wire_bits! {
    /// Access rights.
    pub struct Access {
        /// Read data or list a directory.
        READ = 1,
        /// Look up entries of a directory.
        LOOKUP = 2,
        /// Change data or directory entries.
        MODIFY = 4,
        /// Append data or add directory entries.
        EXTEND = 8,
        /// Remove a directory entry.
        DELETE = 0x10,
        /// Execute a file.
        EXECUTE = 0x20,
        /// Read extended attributes (RFC 8276, section 8.3).
        XAREAD = 0x40,
        /// Set extended attributes.
        XAWRITE = 0x80,
        /// List extended attributes.
        XALIST = 0x100,
    }
}

wire_struct! {
    /// `ACCESS4args`.
    #[derive(Copy)]
    pub struct AccessArgs {
        /// Rights to check.
        pub access: Access,
    }
}

wire_struct! {
    /// `ACCESS4resok`.
    #[derive(Copy)]
    pub struct AccessOk {
        /// Rights that the server could check.
        pub supported: Access,
        /// Rights that the caller has.
        pub access: Access,
    }
}
