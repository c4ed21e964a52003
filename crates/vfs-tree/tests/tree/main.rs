//! Compared with its source, over revisions, restarts and outages.

mod content;
#[allow(unreachable_pub, reason = "shared by the other modules")]
mod fixture;
mod identities;
mod listing;
mod outage;
mod revisions;
