//! File attributes: numbers, values, and the packed form that carries the values that a bitmap
//! selects.

mod fattr;
mod table;
mod types;

pub use fattr::Fattr;
pub use table::{Attr, Attributes};
pub use types::{
    ChangeAttrType, ChangePolicy, FhExpireType, FileType, FsStatus, FsStatusType, LayoutHint, ModeMasked, ModeUmask, OpenArguments,
    RetentionGet, RetentionSet, SecLabel, SpecData,
};

pub use crate::component::{CharsetCap, FsLocation, FsLocations};
