//! A published tree as a read-only file system that can be exported: [`TreeFs`] is a
//! [`vouch_vfs::FileSystem`] over a [`Tree`](vouch_tree_client::Tree), so that a client that has
//! nothing of ours reads what this machine has verified.
//!
//! Owns identities that need no table (`identity`), what is remembered of files (`node`), the way
//! from an identity to a file of the revision in force (`resolve`), cookies of listings (`cookie`),
//! and rights (`rights`). Decides nothing about what is true: every byte and every missing name was
//! verified by the client. Knows nothing of NFS. Has neither a table on disk nor a sweep: a file is
//! looked up again, by its path, when it is asked for after a new revision.
//!
//! Calls made with [`Patience::None`](vouch_vfs::Patience::None) answer from memory or disk cache
//! and start nothing; others, and those that take no patience, wait for replicas at most as long as
//! the client's own deadline. They must not come from within an async task.

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

pub use file_system::TreeFs;
