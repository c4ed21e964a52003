//! By URL and range, as squid with collapsed forwarding.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedReceiver;
use vouch_tree_client::TransportError;

use crate::events::Pending;
use crate::link::TransferId;

pub(crate) type Key = (Arc<str>, Option<(u64, u64)>);

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) range_start: Option<u64>,
    pub(crate) body: Bytes,
}

/// Reaches the node with the header; the body follows.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) range_start: Option<u64>,
    pub(crate) body: UnboundedReceiver<Result<Bytes, TransportError>>,
}

const HEADER_LEN: u64 = 400;

impl Answer {
    pub(crate) fn len(&self) -> u64 {
        self.body.len() as u64 + HEADER_LEN
    }

    /// The body's part in these bytes of the answer.
    pub(crate) fn body_part(&self, bytes: Range<u64>) -> Bytes {
        let offset = |at: u64| at.saturating_sub(HEADER_LEN) as usize;
        self.body.slice(offset(bytes.start)..offset(bytes.end))
    }
}

/// Cached, or being fetched from the origin.
#[derive(Default)]
pub(crate) struct Entry {
    /// `None` until the first byte arrives.
    pub(crate) answer: Option<Answer>,
    pub(crate) received: u64,
    pub(crate) waiting: Vec<Pending>,
    /// Transfers to nodes that may overtake the one from the origin.
    pub(crate) readers: Vec<TransferId>,
}

#[derive(Default)]
pub(crate) struct CacheContent {
    pub(crate) entries: BTreeMap<Key, Entry>,
}
