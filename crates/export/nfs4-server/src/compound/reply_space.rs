//! Room for the results of a call, and the file data between them.

use vouch_nfs4::Status;
use vouch_vfs::FileSpan;
use vouch_xdr::Writer;

pub(crate) struct ReplySpace {
    pub(crate) end_max: usize,
    /// Of the operation whose result passes the end.
    pub(crate) end_status: Status,
    /// Bytes that protection adds.
    pub(crate) tail_len: usize,
    pub(crate) spans_allowed: bool,
    spans: Vec<(usize, FileSpan)>,
    spans_len: usize,
}

impl ReplySpace {
    pub(crate) fn new(end_max: usize, tail_len: usize, spans_allowed: bool) -> Self {
        let (end_status, spans) = (Status::RESOURCE, Vec::new());
        ReplySpace { end_max, end_status, tail_len, spans_allowed, spans, spans_len: 0 }
    }

    pub(crate) fn fits(&self, at: usize, len: usize) -> bool {
        at + self.spans_len + len <= self.end_max
    }

    pub(crate) fn left_len(&self, at: usize) -> usize {
        self.end_max.saturating_sub(at + self.spans_len)
    }

    pub(crate) fn push_span(&mut self, at: usize, span: FileSpan) {
        self.spans_len += span.len;
        self.spans.push((at, span));
    }

    pub(crate) fn has_spans(&self) -> bool {
        !self.spans.is_empty()
    }

    pub(crate) fn take_spans(&mut self) -> Vec<(usize, FileSpan)> {
        std::mem::take(&mut self.spans)
    }

    /// Takes back the results from `at` on.
    pub(crate) fn truncate(&mut self, out: &mut Writer, at: usize) {
        out.truncate(at);
        while let Some((_, span)) = self.spans.pop_if(|(position, _)| *position > at) {
            self.spans_len -= span.len;
        }
    }
}
