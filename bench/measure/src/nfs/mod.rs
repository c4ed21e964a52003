//! Sessions, sources of calls, and the subject ([`NfsSubject`]), from user space.

mod block_reads;
mod calls;
mod file_operations;
mod large_file;
mod load;
mod load_run;
mod metadata;
mod session;
mod small_files;
mod subject;
#[cfg(test)]
mod tests;

pub(crate) use load::{CallResult, CallSource, Pace, Tally};
pub(crate) use session::Session;
pub use subject::{NfsOptions, NfsSubject};
pub(crate) use subject::{PREFIX, share_of, stored};
