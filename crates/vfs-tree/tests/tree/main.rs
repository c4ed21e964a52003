//! A published tree through the `vfs` interface, compared with its source, over revisions, restarts
//! and outages.

mod identities;
mod listing;
mod outage;
mod revisions;
mod showing;
#[allow(unreachable_pub, reason = "shared by the other modules")]
mod world;
