//! Transparency logs.
pub mod append;
pub mod checkpoint;
pub mod key;
pub mod merkle;
pub mod note;
pub mod reader;
pub mod tile;
