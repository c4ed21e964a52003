//! A call and its reply.

use std::sync::Arc;

use bytes::Bytes;
use vouch_vfs::FileSpan;

use crate::{Connection, Flavour, Principal};

/// A COMPOUND call after RPC and security processing. The driver answers NULL.
pub struct Request {
    /// Its connection.
    pub connection: Arc<Connection>,
    /// Transaction id.
    pub xid: u32,
    /// The caller.
    pub principal: Principal,
    /// The flavour.
    pub flavour: Flavour,
    /// Encryption type of the Kerberos context (RFC 3961).
    pub enctype: Option<u32>,
    /// Arguments of COMPOUND: all bytes after the RPC header.
    pub body: Bytes,
    /// Buffer for the results. It already has the driver's headers.
    pub reply: Vec<u8>,
    /// Bytes that protection adds after the results. They count toward the client's limits.
    pub reply_tail_len: usize,
    /// Whether READ may answer with spans of files.
    pub spans_allowed: bool,
}

/// A finished reply.
pub struct Reply {
    /// The request's `reply` buffer with the results appended.
    pub bytes: Vec<u8>,
    /// File data between the bytes: each position in `bytes` is followed by a span, in ascending
    /// order. Padding is already in `bytes`. If the file has shrunk, zeros fill the span.
    pub spans: Vec<(usize, FileSpan)>,
}

impl Reply {
    /// Length on the network, with spans.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.spans.iter().map(|(_, span)| span.len).sum::<usize>()
    }

    /// Whether the reply is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
