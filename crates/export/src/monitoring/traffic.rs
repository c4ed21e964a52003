//! What the driver counts about its own work: connections, bytes, what waited. Operations are
//! counted in `metrics`.

use super::counter::Counter;
use crate::transport::connection_quota::ConnectionQuota;

/// The counts.
#[derive(Default)]
pub(crate) struct Traffic {
    /// Connections of each address now.
    pub(crate) addresses: ConnectionQuota,
    pub(crate) accepted: Counter,
    pub(crate) refused: Counter,
    /// Closed because their host's name was not found in time, or too many waited for theirs.
    pub(crate) unnamed: Counter,
    pub(crate) closed: Counter,
    /// Closed because the peer broke RPC, or was too slow to send or to take.
    pub(crate) closed_broken: Counter,
    pub(crate) closed_slow: Counter,
    pub(crate) calls: Counter,
    pub(crate) received_len: Counter,
    pub(crate) sent_len: Counter,
    /// Calls that had to wait for a disk or a network.
    pub(crate) blocked: Counter,
    pub(crate) callbacks: Counter,
    pub(crate) callbacks_failed: Counter,
    pub(crate) reloads: Counter,
    pub(crate) reloads_failed: Counter,
}
