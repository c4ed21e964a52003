//! The client against slow, stale, absent or lying replicas.

mod fault_observer;
#[allow(unreachable_pub, reason = "shared by the other modules")]
mod fixture;
mod freshness;
mod pull;
mod random_lies;
mod reading;
mod replicas;
mod stolen_key;
