//! The service `vouch.export.v1.Management` of `proto/vouch_export_v1.proto`: gRPC over TLS with client
//! certificates, whose holders have roles. `script/generate-grpc` makes `export_v1.rs`.

mod access;
pub(crate) mod client;
mod convert;
#[allow(clippy::all, unreachable_pub, missing_docs, reason = "generated")]
pub(crate) mod export_v1;
mod listener;
mod service;

pub use access::ManagementConfig;
pub(crate) use access::RemoteAccess;
pub use client::{RemoteServer, RemoteServerError};
pub(crate) use listener::run;
