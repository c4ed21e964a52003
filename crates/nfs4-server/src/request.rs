//! One call as it comes, and the reply as it goes.

use std::sync::Arc;

use bytes::Bytes;
use vouch_vfs::FileSpan;

use crate::{Connection, Flavour, Principal};

/// One COMPOUND call after RPC and security are through. The NULL procedure is the driver's to
/// answer.
pub struct Request {
    /// Over which connection it came.
    pub connection: Arc<Connection>,
    /// Transaction id.
    pub xid: u32,
    /// Who calls.
    pub principal: Principal,
    /// Under which flavour.
    pub flavour: Flavour,
    /// Encryption type of the Kerberos context (RFC 3961's numbers), for those who keep records.
    pub enctype: Option<u32>,
    /// Arguments of COMPOUND: all bytes after the RPC header.
    pub body: Bytes,
    /// Results are appended here: the driver has put its own headers there already.
    pub reply: Vec<u8>,
    /// Bytes that will follow the results when they are wrapped: they count toward the limits that
    /// the client set.
    pub reply_tail_len: usize,
    /// Whether READ may answer with spans of files.
    pub spans_allowed: bool,
}

/// A finished reply.
pub struct Reply {
    /// What the request's `reply` held, then the COMPOUND results.
    pub bytes: Vec<u8>,
    /// Data that belongs between the bytes: position in `bytes` before which the span comes, in
    /// ascending order. Padding after it is in `bytes` already. If the file has
    /// shrunk meanwhile, zeros make up the rest.
    pub spans: Vec<(usize, FileSpan)>,
}

impl Reply {
    /// Bytes on the wire: those here and those of the spans.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.spans.iter().map(|(_, span)| span.len).sum::<usize>()
    }

    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
