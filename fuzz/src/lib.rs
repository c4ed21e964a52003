//! Code shared by several fuzz targets.

pub mod arguments;
