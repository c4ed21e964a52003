pub(crate) mod changes;
pub(crate) mod client_matcher;
pub(crate) mod effective;
pub(crate) mod list_check;
mod mount_identity;
pub(crate) mod opener;
mod placement;
pub(crate) mod reload;
pub(crate) mod source_error;
pub(crate) mod sources;
pub(crate) mod syntax;
mod trees;

pub use syntax::Source;
