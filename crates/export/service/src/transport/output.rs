//! Replies and callbacks, with file ranges between their bytes. Never touches a socket.

use std::collections::VecDeque;

use vouch_rpcsec_gss::Envelope;
use vouch_vfs::FileSpan;

pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    /// Each position in `bytes` is that before the range.
    spans: Vec<(usize, FileSpan)>,
    envelope: Option<Envelope>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Unsealed,
    Failed,
}

pub(crate) struct Unsealed<'a> {
    pub(crate) bytes: &'a mut Vec<u8>,
    pub(crate) envelope: &'a Envelope,
    spans_len: usize,
    state: &'a mut State,
}

#[derive(Default)]
pub(crate) struct Output {
    queue: VecDeque<Outgoing>,
    at: Cursor,
    bytes_len: usize,
    spans_len: u64,
}

#[derive(Clone, Copy, Default)]
struct Cursor {
    bytes: usize,
    spans: usize,
    in_span: usize,
}

pub(crate) enum Piece<'a> {
    Bytes(&'a [u8]),
    Span(&'a FileSpan, usize),
}

impl Outgoing {
    pub(crate) fn bytes(bytes: Vec<u8>) -> Self {
        Outgoing { bytes, spans: Vec::new(), envelope: None, state: State::Ready }
    }

    pub(crate) fn unmarked(bytes: Vec<u8>, envelope: Option<Envelope>) -> Self {
        Self::reply(bytes, Vec::new(), envelope)
    }

    /// `bytes` have room for the record mark, which is set now or after sealing.
    pub(crate) fn reply(
        bytes: Vec<u8>,
        spans: Vec<(usize, FileSpan)>,
        envelope: Option<Envelope>,
    ) -> Self {
        let state = if envelope.is_some() { State::Unsealed } else { State::Ready };
        let mut outgoing = Outgoing { bytes, spans, envelope, state };
        if state == State::Ready {
            let extra = outgoing.spans_len();
            vouch_oncrpc::end_record(&mut outgoing.bytes, 0, extra);
        }
        outgoing
    }

    pub(crate) fn unsealed(&mut self) -> Option<Unsealed<'_>> {
        if self.state != State::Unsealed {
            return None;
        }
        let spans_len = self.spans_len();
        let envelope = self.envelope.as_ref()?;
        Some(Unsealed { bytes: &mut self.bytes, envelope, spans_len, state: &mut self.state })
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    #[cfg(test)]
    pub(crate) fn memory(&self) -> &[u8] {
        &self.bytes
    }

    fn spans_len(&self) -> usize {
        self.spans.iter().map(|(_, span)| span.len).sum()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.spans_len()
    }
}

impl Unsealed<'_> {
    pub(crate) fn finish(self, sealed: bool) {
        match sealed {
            true => {
                vouch_oncrpc::end_record(self.bytes, 0, self.spans_len);
                *self.state = State::Ready;
            }
            false => {
                self.bytes.clear();
                *self.state = State::Failed;
            }
        }
    }
}

impl Output {
    pub(crate) fn push(&mut self, record: Outgoing) {
        debug_assert!(record.is_ready(), "a record is sealed before it is queued");
        self.bytes_len += record.bytes.len();
        self.spans_len += record.spans.iter().map(|(_, span)| span.len as u64).sum::<u64>();
        self.queue.push_back(record);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn records(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn bytes_len(&self) -> usize {
        self.bytes_len
    }

    pub(crate) fn spans_len(&self) -> u64 {
        self.spans_len
    }

    pub(crate) fn pieces<'a>(&'a self, mut each: impl FnMut(Piece<'a>) -> bool) {
        let mut at = self.at;
        for record in &self.queue {
            loop {
                let next = record.spans.get(at.spans);
                let end = next.map_or(record.bytes.len(), |(before, _)| *before);
                if at.bytes < end && !each(Piece::Bytes(&record.bytes[at.bytes..end])) {
                    return;
                }
                at.bytes = end;
                let Some((_, span)) = next else { break };
                if !each(Piece::Span(span, at.in_span)) {
                    return;
                }
                at.spans += 1;
                at.in_span = 0;
            }
            at = Cursor::default();
        }
    }

    pub(crate) fn advance(&mut self, mut len: usize, mut done: impl FnMut(Vec<u8>)) {
        while let Some(record) = self.queue.front_mut() {
            let next = record.spans.get(self.at.spans);
            let end = next.map_or(record.bytes.len(), |(before, _)| *before);
            let step = len.min(end - self.at.bytes);
            self.at.bytes += step;
            len -= step;
            if self.at.bytes < end {
                return;
            }
            match next {
                Some((_, span)) => {
                    let step = len.min(span.len - self.at.in_span);
                    self.at.in_span += step;
                    len -= step;
                    if self.at.in_span < span.len {
                        return;
                    }
                    self.at.spans += 1;
                    self.at.in_span = 0;
                }
                None => {
                    self.bytes_len -= record.bytes.len();
                    self.spans_len -=
                        record.spans.iter().map(|(_, span)| span.len as u64).sum::<u64>();
                    self.at = Cursor::default();
                    if let Some(record) = self.queue.pop_front() {
                        done(record.bytes);
                    }
                }
            }
        }
        debug_assert_eq!(len, 0, "no more leaves than waits");
    }

    pub(crate) fn clear(&mut self) {
        *self = Output::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::Arc;

    fn flat(output: &Output) -> Vec<(bool, usize)> {
        let mut pieces = Vec::new();
        output.pieces(|piece| {
            pieces.push(match piece {
                Piece::Bytes(bytes) => (false, bytes.len()),
                Piece::Span(span, at) => (true, span.len - at),
            });
            true
        });
        pieces
    }

    fn span(len: usize) -> FileSpan {
        FileSpan { file: Arc::new(File::open("/dev/null").unwrap()), offset: 0, len }
    }

    #[test]
    fn spans_are_sent_between_bytes() {
        let mut output = Output::default();
        output.push(Outgoing::reply(
            vec![0; 100],
            vec![(40, span(1000)), (40, span(5)), (100, span(7))],
            None,
        ));
        output.push(Outgoing::bytes(vec![1; 10]));
        assert_eq!(
            flat(&output),
            [(false, 40), (true, 1000), (true, 5), (false, 60), (true, 7), (false, 10)]
        );
        assert_eq!((output.bytes_len(), output.spans_len(), output.records()), (110, 1012, 2));
    }

    #[test]
    fn record_mark_counts_the_spans() {
        let record = Outgoing::reply(vec![0; 8], vec![(8, span(1000))], None);
        assert_eq!(record.bytes[..4], (0x8000_0000u32 + 1004).to_be_bytes());
    }

    proptest::proptest! {
        #[test]
        fn any_write_sizes_send_everything(steps in proptest::collection::vec(1usize..600, 1..200)) {
            let mut output = Output::default();
            output.push(Outgoing::reply(vec![0; 100], vec![(40, span(1000)), (100, span(3))], None));
            output.push(Outgoing::bytes(vec![1; 10]));
            output.push(Outgoing::reply(vec![0; 30], vec![(4, span(500))], None));
            let mut left: usize = 100 + 1003 + 10 + 530;
            let mut done = 0;
            for step in steps {
                let step = step.min(left);
                output.advance(step, |_| done += 1);
                left -= step;
                proptest::prop_assert_eq!(flat(&output).iter().map(|(_, len)| len).sum::<usize>(), left);
                proptest::prop_assert_eq!(output.is_empty(), left == 0);
            }
            proptest::prop_assert_eq!(output.records(), 3 - done);
        }
    }
}
