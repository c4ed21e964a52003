//! A tree file system compared with its source.

mod content;
#[allow(unreachable_pub, reason = "shared by the other modules")]
mod fixture;
mod identities;
mod listing;
mod outage;
mod revisions;
