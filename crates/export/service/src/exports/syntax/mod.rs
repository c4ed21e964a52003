mod client;
mod duplicate;
mod entry;
mod lex;
mod options;
mod parse;

pub(crate) use client::{MachineName, fits, in_network};
pub(crate) use duplicate::duplicates;
pub use entry::Source;
pub(crate) use entry::{At, Client, Entry, LineError, Warning};
pub use options::option_forms;
pub(crate) use options::{Fsid, Options};
pub(crate) use parse::{parse, parse_options};
