//! Kerberos tests with a real KDC.

mod active_directory;
mod back_channel;
mod bench;
mod bit_flips;
mod contexts;
mod credential_cache;
mod directory;
mod documented;
mod export;
mod forged_messages;
mod jobs;
#[path = "../end_to_end/lock_holder.rs"]
mod lock_holder;
mod nat;
mod nfs_mount;
mod over_tls;
mod own_client;
mod pipeline;
mod prelude;
mod relay;
mod retransmission;
mod takeover;
