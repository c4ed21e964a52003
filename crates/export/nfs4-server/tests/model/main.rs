//! Clients of 4.0 and 4.1 call in any order, reconnect, stay silent and restart; the server
//! restarts too. No two clients hold conflicting state, live clients lose nothing, retries get the
//! first reply, and all state ends.

mod agent;
mod driver;
mod held_state;
mod simulation;
mod wire;
