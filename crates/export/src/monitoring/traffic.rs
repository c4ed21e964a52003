//! What the driver counts about its own work: connections, bytes, what waited. Operations are
//! counted in `metrics`.

use super::counter::Count;
use crate::transport::connection_quota::Addresses;

/// The counts.
#[derive(Default)]
pub(crate) struct Traffic {
    /// Connections of each address now.
    pub(crate) addresses: Addresses,
    pub(crate) accepted: Count,
    pub(crate) refused: Count,
    /// Closed because their host's name was not found in time, or too many waited for theirs.
    pub(crate) unnamed: Count,
    pub(crate) closed: Count,
    /// Closed because the peer broke RPC, or was too slow to send or to take.
    pub(crate) closed_broken: Count,
    pub(crate) closed_slow: Count,
    pub(crate) calls: Count,
    pub(crate) received_len: Count,
    pub(crate) sent_len: Count,
    /// Calls that had to wait for a disk or a network.
    pub(crate) blocked: Count,
    pub(crate) callbacks: Count,
    pub(crate) callbacks_failed: Count,
    pub(crate) reloads: Count,
    pub(crate) reloads_failed: Count,
}
