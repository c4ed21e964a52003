//! Kerberos by a real KDC: the realm that the tests stand on, and our own client in it.

mod altered;
mod back_channel;
mod contexts;
mod credential_cache;
mod export;
mod forged;
mod kdc;
mod measuring;
mod nat;
mod own_client;
mod pipeline;
mod realm;
mod relay;
mod retry;
