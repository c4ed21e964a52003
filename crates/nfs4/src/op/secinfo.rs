//! SECINFO and SECINFO_NO_NAME (RFC 8881, sections 18.29 and 18.45).

use crate::macros::{wire_enum, wire_struct};
use crate::{List, Name, SEC_PARMS_MAX, SecInfo};

wire_struct! {
    /// `SECINFO4args`.
    #[derive(Copy)]
    pub struct SecinfoArgs<'a> {
        /// Name of the entry in the current directory.
        pub name: Name<'a>,
    }
}

wire_enum! {
    /// Object of SECINFO_NO_NAME (`secinfo_style4`).
    pub enum SecinfoStyle = "secinfo_style4" {
        /// The current file.
        CurrentFh = 0,
        /// The parent of the current file.
        Parent = 1,
    }
}

wire_struct! {
    /// `SECINFO_NO_NAME4args`.
    #[derive(Copy)]
    pub struct SecinfoNoNameArgs {
        /// Object of the request.
        pub style: SecinfoStyle,
    }
}

wire_struct! {
    /// `SECINFO4resok`.
    pub struct SecinfoOk<'a> {
        /// Security flavours in order of preference.
        pub flavors: List<SecInfo<'a>, SEC_PARMS_MAX>,
    }
}
