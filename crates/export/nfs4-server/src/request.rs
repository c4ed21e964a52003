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
}

impl Reply {
    pub fn len(&self) -> usize {
        self.bytes.len() + self.spans.iter().map(|(_, span)| span.len).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
