//! What several targets share.

pub mod arguments;
