//! The usable revision: refresh, rollback protection, key statements.

mod current; // The revision in force, and why nothing may be used.
pub(crate) mod refresh; // Asks the replicas for the newest revision.
pub(crate) mod seen_store; // Newest revision seen of each tree, on disk: rollback protection.
pub(crate) mod statement_files; // Key statements from local directories and published trees.

pub(crate) use current::{Freshness, forwarding_target};
