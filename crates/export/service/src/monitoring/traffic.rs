use super::counter::Counter;
use crate::transport::connection_quota::ConnectionQuota;

#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) addresses: ConnectionQuota,
    pub(crate) accepted: Counter,
    pub(crate) refused: Counter,
    /// Closed because the look-up of the host name timed out or was refused.
    pub(crate) unnamed: Counter,
    pub(crate) closed: Counter,
    pub(crate) closed_broken: Counter,
    pub(crate) closed_slow: Counter,
    pub(crate) calls: Counter,
    pub(crate) received_len: Counter,
    pub(crate) sent_len: Counter,
    pub(crate) blocked: Counter,
    pub(crate) callbacks: Counter,
    pub(crate) callbacks_failed: Counter,
    pub(crate) reloads: Counter,
    pub(crate) reloads_failed: Counter,
}
