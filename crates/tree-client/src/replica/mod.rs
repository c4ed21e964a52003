pub(crate) mod reply_parser; // Splits the byte stream into replies, and GETDATA replies into frames.

mod batch; // Batches queued requests into GETDATA calls.
mod connection; // A connection: a stream, or a replica within the process.
mod fetch; // One frame from the first replica that has it: choice, hedging, retries.
#[allow(clippy::module_inception, reason = "one replica of those that the folder is about")]
mod replica; // One replica: its connection, calls and faults.
mod request;
mod score; // Latency, failures and lies of each replica; chooses the next.
mod set; // The replicas of one tree, and name resolution.
mod status; // Status and traffic counters for display.
mod stream_connection; // One stream: calls in flight, matched to replies by transaction.

pub(crate) use connection::CallFailure;
pub(crate) use replica::{Reach, Replica};
pub(crate) use request::{FetchedFrame, FrameRequest, Priority};
pub(crate) use set::{Location, ReplicaSet};
pub(crate) use status::CounterCells;
pub use status::{Counters, ReplicaState, ReplicaStatus};
