//! The server as a whole: opened, run, stopped.

mod open;
mod run;

pub use open::Server;
