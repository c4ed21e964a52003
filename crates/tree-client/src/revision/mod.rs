//! Revisions: the verified root of a tree, its history, differences, and a full check.

mod check; // Fetches and verifies every frame of a revision.
mod diff; // Differences between two revisions.
mod history; // Older revisions, newest first.
mod prove; // Proofs of past content.
mod verified; // One revision with verified signatures.

pub use check::{Verification, VerifyEvent};
pub use diff::{Change, ChangeKind, ChangedFields, Diff};
pub use history::History;
pub use prove::Proof;
pub use verified::{Revision, RevisionOrder};
