//! Trees are published and served in this process. Skipped without /dev/fuse, and root or
//! fusermount3, unless CI=true.

#[allow(unreachable_pub, reason = "shared by the other modules")]
mod fixture;
mod freshness;
mod full_disk;
mod lies;
mod lifecycle;
mod metadata;
mod namespace;
mod observer;
mod passthrough;
mod prelude;
mod revision;
mod take_over;
