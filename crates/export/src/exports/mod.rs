//! The list of exports: its syntax, the file systems that it names, the rights of clients.

pub(crate) mod client_matcher;
mod mount_identity;
pub(crate) mod opener;
pub(crate) mod reload;
pub(crate) mod sources;
pub(crate) mod syntax;
mod trees;

pub use syntax::Source;
