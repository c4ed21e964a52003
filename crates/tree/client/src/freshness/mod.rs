//! The usable revision: refresh, rollback protection, key statements.

pub(crate) mod belief;
mod current;
pub(crate) mod refresh;
pub(crate) mod seen_store;
pub(crate) mod statement_files;

pub(crate) use current::{Freshness, forwarding_target};
