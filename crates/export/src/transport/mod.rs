//! TCP connections and the RPC records on them.

pub(crate) mod accept;
pub(crate) mod callback_dialer;
pub(crate) mod connection;
pub(crate) mod connection_quota;
pub(crate) mod inbox;
pub(crate) mod output;
pub(crate) mod receive;
pub(crate) mod rpc_call;
pub(crate) mod send;
