mod check;
mod diff;
mod history;
mod prove;
mod verified;

pub use check::{Verification, VerifyEvent};
pub use diff::{Change, ChangeKind, ChangedFields, Diff};
pub use history::History;
pub use prove::Proof;
pub use verified::{Revision, RevisionOrder};
