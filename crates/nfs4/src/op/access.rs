//! ACCESS (RFC 8881, section 18.1).

use crate::macros::{wire_bits, wire_struct};

wire_bits! {
    /// Kinds of access.
    pub struct Access {
        /// Read data or list a directory.
        READ = 1,
        /// Look up in a directory.
        LOOKUP = 2,
        /// Change data or entries.
        MODIFY = 4,
        /// Append data or add entries.
        EXTEND = 8,
        /// Remove an entry.
        DELETE = 0x10,
        /// Execute.
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
        /// What is asked about.
        pub access: Access,
    }
}

wire_struct! {
    /// `ACCESS4resok`.
    #[derive(Copy)]
    pub struct AccessOk {
        /// What could be told.
        pub supported: Access,
        /// What is granted.
        pub access: Access,
    }
}
