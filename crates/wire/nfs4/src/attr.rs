mod fattr;
mod table;
mod types;

pub use fattr::Fattr;
pub use table::{Attr, Attributes};
pub use types::{
    ChangeAttrType, ChangePolicy, FhExpireType, FileType, FsStatus, FsStatusType, LayoutHint,
    ModeMasked, ModeUmask, OpenArguments, RetentionGet, RetentionSet, SecLabel, SpecData,
};

pub use crate::component::{
    CharsetCap, FsLocation, FsLocations, FsLocationsInfo, FsLocationsItem, FsLocationsServer,
};
