//! End-to-end tests of the `vouch` binary, from key generation to mount and export: output, effects
//! and exit codes. Each test has its own directory, keys, database, replicas on free ports, state
//! and cache.

mod audit_kills;
mod auditing;
mod bad_input;
mod browser;
mod export_audit;
mod exporting;
mod keys;
mod killing;
mod measuring;
mod measuring_alone;
mod measuring_faults;
mod mount_audit;
mod mounting;
mod ordinary_user;
mod power;
mod publishing;
mod reading;
mod sending;
mod sending_to_nats;
mod service;
mod trust;
mod world;
