//! [`TreeFs`] implements [`vouch_vfs::FileSystem`] over a [`Tree`](vouch_tree_client::Tree). The
//! client verifies every byte and every missing name.
//!
//! Identities need no table (`identity`): a file is looked up by its path in the revision in force
//! (`resolve`).
//!
//! Calls with [`Blocking::Forbidden`](vouch_vfs::Blocking::Forbidden) answer from memory or disk
//! cache; others wait for replicas at most as long as the client's deadline, and must not come from
//! within an async task.

mod acl;
mod attributes;
mod cookie;
mod core;
mod error;
mod file_system;
mod identity;
mod listing;
mod node;
mod open;
mod resolve;
mod rights;
mod search;
mod watch;

pub use file_system::TreeFs;
