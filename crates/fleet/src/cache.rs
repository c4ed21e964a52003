//! By URL and range, as squid with collapsed forwarding.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::events::Pending;
use crate::link::TransferId;

pub(crate) type Key = (Arc<str>, Option<(u64, u64)>);

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) range_start: Option<u64>,
    pub(crate) body: Bytes,
}

const HEADER_LEN: u64 = 400;

impl Answer {
    pub(crate) fn len(&self) -> u64 {
        self.body.len() as u64 + HEADER_LEN
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
