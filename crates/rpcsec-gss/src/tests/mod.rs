//! Server and client against each other, with real keys and a fake mechanism.

mod back;
mod contexts;
mod exchange;
mod fixture;
mod many;
mod tamper;
