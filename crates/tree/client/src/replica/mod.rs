pub(crate) mod reply_parser;

mod batch;
mod connection;
mod fetch; // One frame: choice of replicas, hedging, retries.
#[allow(clippy::module_inception, reason = "one replica of those that the folder is about")]
mod replica;
mod request;
mod score;
mod set; // The replicas of one tree, and name resolution.
mod status;
mod stream_connection;

pub(crate) use connection::CallFailure;
pub(crate) use replica::{Reach, Replica};
pub(crate) use request::{FetchedFrame, FrameRequest, Priority};
pub(crate) use set::{Location, ReplicaSet};
pub(crate) use status::CounterCells;
pub use status::{Counters, ReplicaState, ReplicaStatus};
