//! End-to-end tests of the `vouch` binary, from key generation to mount and export: output, effects
//! and exit codes. Each test has its own directory, keys, database, replicas on free ports, state
//! and cache.

mod audit_commands;
mod audit_crash;
mod audit_send;
mod audit_send_nats;
mod bad_input;
mod bench;
mod bench_faults;
mod bench_local;
mod browser;
mod bucket;
mod bugreport;
mod certificates;
mod check;
mod configuration;
mod crash;
mod export;
mod export_audit;
mod export_tls;
mod gateway;
mod gateway_downloads;
mod http_replica;
mod keys;
mod links_between_trees;
mod mount;
mod mount_audit;
mod mount_program;
mod ordinary_user;
mod packages;
mod power_failure;
mod proofs;
mod publish;
mod read_commands;
mod replica_attacks;
mod service_manager;
mod status;
mod test_site;
mod upgrade;
