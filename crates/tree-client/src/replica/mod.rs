pub(crate) mod reply_parser; // Splits the byte stream into replies, and GETDATA replies into frames.

mod batch;
mod connection;
mod fetch; // One frame from the first replica that has it: choice, hedging, retries.
#[allow(clippy::module_inception, reason = "one replica of those that the folder is about")]
mod replica; // One replica: its connection, calls and faults.
mod request;
mod score; // Latency, failures and lies of each replica; chooses the next.
mod set;
mod status;

pub(crate) use connection::CallFailure;
pub(crate) use replica::{Reach, Replica};
pub(crate) use request::{FetchedFrame, FrameRequest, Priority};
pub(crate) use set::{Location, ReplicaSet};
pub(crate) use status::CounterCells;
pub use status::{Counters, ReplicaState, ReplicaStatus};
