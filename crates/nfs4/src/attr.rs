//! Attributes: their numbers, a structure of their values, and the packed form that carries those
//! that a bitmap names.

mod fattr;
mod table;
mod types;

pub use fattr::{ATTR_VALUES_LEN_MAX, Fattr};
pub use table::{Attr, Attributes};
pub use types::{
    ChangeAttrType, ChangePolicy, FhExpireType, FileType, FsStatus, FsStatusType, LayoutHint, ModeMasked, ModeUmask, OpenArguments,
    RetentionGet, RetentionSet, SecLabel, SpecData,
};

pub use crate::component::{CharsetCap, FsLocation, FsLocations};
