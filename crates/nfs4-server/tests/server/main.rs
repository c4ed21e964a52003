//! In process: call bytes in, reply bytes out.

mod attributes;
mod background_work;
mod blocked_calls;
mod client_access;
mod data;
mod delegations;
mod durability;
mod export_layout;
mod fixture;
mod flavours;
mod hostile_clients;
mod listings;
mod machine_credential;
mod malformed_calls;
mod name_order;
mod namespace;
mod observer;
mod opens;
mod ops;
mod panics;
mod random_blocking;
mod referrals;
mod refusals;
mod revocation;
mod transport;
mod v40_principals;
