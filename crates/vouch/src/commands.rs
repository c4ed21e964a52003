//! The subcommands: in each file the definition of its options, its help, and the code that runs it.

pub(crate) mod completions;
pub(crate) mod man;
