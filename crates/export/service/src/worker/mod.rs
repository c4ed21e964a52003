mod handshake_queue;
mod peer;
pub(crate) mod scratch;
mod suspended_call;
mod thread;
mod verify_batch;

pub(crate) use thread::{WAKE, Worker};
