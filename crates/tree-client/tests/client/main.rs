//! The client against replicas in memory, honest and lying. One binary, so that it links once.

mod freshness;
#[allow(unreachable_pub, reason = "shared by the other modules")]
mod lies;
mod pulling;
mod reading;
mod replicas;
mod thief;
mod unfoolable;
mod witness;
#[allow(unreachable_pub, reason = "shared by the other modules")]
mod world;
