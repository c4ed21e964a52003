//! Kerberos tests with a real KDC.

mod back_channel;
mod bench;
mod bit_flips;
mod contexts;
mod credential_cache;
mod export;
mod forged_messages;
mod kdc;
mod nat;
mod own_client;
mod pipeline;
mod realm;
mod relay;
mod retransmission;
