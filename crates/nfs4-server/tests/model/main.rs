//! The whole server against a simple model: several clients of 4.0 and 4.1 call in any order, lose
//! connections, fall silent, restart, are called back and answer or don't; the server restarts.
//! Whatever happens, no two hold what conflicts, nobody loses what is his, a call that comes again
//! is answered as before, and in the end nothing is left. A failure is told as the shortest list of
//! steps that shows it, and by the seed that made it.

mod agent;
mod holdings;
mod net;
mod run;
mod wire;
