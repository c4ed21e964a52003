//! Orders of administrators to a running server, over its control socket.

pub(crate) mod manager;
pub(crate) mod order;

pub use order::{Answer, ExportRule, LockStatus, Order, StateKind, StateStatus, send};
pub use vouch_daemon::status_client::OrderError;
