//! RPC-with-TLS (RFC 9289). Workers run handshakes between their other work, at most half of the
//! time when other clients wait. Sealing happens under the lock of a connection's output.

pub(crate) mod certificate_map;
mod error;
mod handshake;
mod kernel;
mod live_credentials;
mod output;
mod service;

pub use error::TlsServiceError;
pub use service::TlsConfig;

pub(crate) use certificate_map::{Holder, ParseHolder};
pub(crate) use handshake::{HandshakeEnd, PeerTls};
pub(crate) use live_credentials::{Fresh, LiveCredentials, days_left};
pub(crate) use output::TlsOutput;
pub(crate) use service::{CERTIFICATE_USER, Tls, check_files};
