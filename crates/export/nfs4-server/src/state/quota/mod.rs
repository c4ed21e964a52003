//! Shares of each source in the tables, and eviction.

mod client_quota;
mod eviction_limit;
mod session_quota;
mod source;
mod usage;

pub(super) use source::Source;
pub(super) use usage::{Resource, SourceKey, SourceTable, within_share};
