pub(crate) mod changes;
pub(crate) mod client_matcher;
pub(crate) mod list_check;
mod mount_identity;
pub(crate) mod opener;
pub(crate) mod reload;
pub(crate) mod sources;
pub(crate) mod syntax;
mod trees;

pub use syntax::Source;
