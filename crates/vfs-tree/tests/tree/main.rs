//! A published tree through the interface of a file system: against the directory that was
//! published, over revisions, restarts and outages.

mod identities;
mod listing;
mod outage;
mod revisions;
mod showing;
#[allow(unreachable_pub, reason = "shared by the other modules")]
mod world;
