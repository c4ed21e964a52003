//! Orders of administrators to a running server, over its control socket and by gRPC over TLS.

mod administrator;
pub(crate) mod grpc;
pub(crate) mod manager;
pub(crate) mod order;

pub(crate) use administrator::{Administrator, Role};
pub use grpc::{ManagementConfig, RemoteServer, RemoteServerError};
pub use order::{Answer, ExportRule, LockStatus, Order, StateKind, StateStatus, send};
pub use vouch_daemon::status_client::OrderError;
pub use vouch_rpc_tls::credentials::ClientFiles;
