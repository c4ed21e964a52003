use std::sync::Arc;

use bytes::Bytes;
use vouch_vfs::FileSpan;

use crate::{Connection, Flavour, Principal};

pub struct Request {
    pub connection: Arc<Connection>,
    pub xid: u32,
    pub principal: Principal,
    pub flavour: Flavour,
    pub enctype: Option<u32>,
    /// All bytes after the RPC header.
    pub body: Bytes,
    /// For the results, with the driver's headers.
    pub reply: Vec<u8>,
    /// Bytes that protection adds after the results; they count toward the client's limits.
    pub reply_tail_len: usize,
    pub spans_allowed: bool,
}

pub struct Reply {
    pub bytes: Vec<u8>,
    /// A span follows each position in `bytes`. Padding is already in `bytes`.
    pub spans: Vec<(usize, FileSpan)>,
    pub kind: ReplyKind,
    /// It waits until the observer has stored the events of its call.
    pub awaits_observer: bool,
}

/// Which recovery records must be durable before the reply leaves (RFC 8881 §8.4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyKind {
    /// Those among the effects of its call.
    #[default]
    Plain,
    /// All: it grants state, which another client lost.
    Grant,
    /// All: it repeats a reply that may grant state.
    Replay,
}

impl Reply {
    pub fn len(&self) -> usize {
        self.bytes.len() + self.spans.iter().map(|(_, span)| span.len).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
