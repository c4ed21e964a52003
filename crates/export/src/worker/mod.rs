//! Worker threads: they read calls, run them and send replies.

mod peer;
pub(crate) mod scratch;
mod thread;
mod verify_batch;

pub(crate) use thread::{WAKE, Worker};
