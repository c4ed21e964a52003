//! SECINFO and SECINFO_NO_NAME (RFC 8881, sections 18.29 and 18.45).

use crate::macros::{wire_enum, wire_struct};
use crate::{List, Name, SEC_PARMS_MAX, SecInfo};

wire_struct! {
    /// `SECINFO4args`.
    #[derive(Copy)]
    pub struct SecinfoArgs<'a> {
        /// The entry of the current directory.
        pub name: Name<'a>,
    }
}

wire_enum! {
    /// Which file (`secinfo_style4`).
    pub enum SecinfoStyle = "secinfo_style4" {
        /// The current one.
        CurrentFh = 0,
        /// Its parent.
        Parent = 1,
    }
}

wire_struct! {
    /// `SECINFO_NO_NAME4args`.
    #[derive(Copy)]
    pub struct SecinfoNoNameArgs {
        /// Which file.
        pub style: SecinfoStyle,
    }
}

wire_struct! {
    /// `SECINFO4resok`.
    pub struct SecinfoOk<'a> {
        /// The flavours, the preferred one first.
        pub flavors: List<SecInfo<'a>, SEC_PARMS_MAX>,
    }
}
