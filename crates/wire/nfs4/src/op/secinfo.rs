//! SECINFO and SECINFO_NO_NAME (RFC 8881 §18.29 and 18.45).

use crate::macros::{wire_copy, wire_enum, wire_struct};
use crate::{List, Name, SEC_PARMS_MAX, SecInfo};

wire_copy! {
    pub struct SecinfoArgs<'a> { pub name: Name<'a> }
}

wire_enum! {
    pub enum SecinfoStyle = "secinfo_style4" {
        CurrentFh = 0,
        Parent = 1,
    }
}

wire_copy! {
    pub struct SecinfoNoNameArgs { pub style: SecinfoStyle }
}

wire_struct! {
    pub struct SecinfoOk<'a> {
        /// In order of preference.
        pub flavors: List<SecInfo<'a>, SEC_PARMS_MAX>,
    }
}
