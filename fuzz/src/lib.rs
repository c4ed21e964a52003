//! Shared by several fuzz targets.

pub mod arguments;
