mod open;
mod run;

pub use open::Server;
