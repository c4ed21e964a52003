//! Replicas: connections to them, what is known of their speed and honesty, and whom to ask next.

pub(crate) mod arrival;
mod batch;
mod connection;
mod fetch;
mod race;
mod score;
mod set;
mod status;

pub(crate) use batch::FetchedFrame;
pub(crate) use connection::{CallFailure, Connection};
pub(crate) use fetch::{Urgency, Want};
pub(crate) use set::{Location, Reach, Replica, ReplicaSet};
pub(crate) use status::CounterCells;
pub use status::{Counters, ReplicaState, ReplicaStatus};
