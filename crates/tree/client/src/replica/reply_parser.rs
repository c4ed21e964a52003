//! Splits a byte stream into RPC replies, and GETDATA replies into frames.

use bytes::Bytes;
use vouch_oncrpc::{Next, RecordError, RecordMarks};
use vouch_tree::FRAME_LEN_MAX;
use vouch_tree::protocol::{DATA_LEN_MAX, FOUND, NOT_FOUND};

/// Full GETDATA results, and an RPC header with the longest verifier.
pub(super) const RECORD_LEN_MAX: usize = DATA_LEN_MAX + 512;

const DIRECT_LEN_MIN: usize = 16 * 1024;

pub(super) const READ_LEN: usize = 64 * 1024;

const READ_LEN_BETWEEN: usize = 8 * 1024;

/// An accepted reply up to the count of results (RFC 5531 §9).
const HEAD_LEN: usize = 28;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplyEvent {
    Reply(Bytes),
    /// xid and result of a GETDATA call; `None`: no such frame.
    Frame(u32, Option<Bytes>),
    End(u32),
    Garbage(u32, String),
}

pub(super) struct ReplyParser {
    marks: RecordMarks,
    state: State,
}

enum State {
    Whole { bytes: Vec<u8>, cut: bool },
    Results { xid: u32, left: usize, part: Part },
    Skipped,
}

enum Part {
    Words([u8; 8], usize),
    Frame { bytes: Vec<u8>, len: usize },
    Padding(Vec<u8>, usize),
}

const START: Part = Part::Words([0; 8], 0);

const BEGINNING: State = State::Whole { bytes: Vec::new(), cut: true };

impl ReplyParser {
    pub(super) const fn new() -> Self {
        Self { marks: RecordMarks::new(RECORD_LEN_MAX), state: BEGINNING }
    }

    /// Valid after [`ReplyParser::next`] returned `None`.
    pub(super) fn direct_buffer(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let State::Results { part: Part::Frame { bytes, len }, .. } = &mut self.state else {
            return None;
        };
        let most = self.marks.left().min(*len - bytes.len());
        (most >= DIRECT_LEN_MIN).then_some((bytes, most))
    }

    pub(super) const fn direct_read(&mut self, n: usize) {
        self.marks.took(n);
    }

    pub(super) const fn read_len(&self) -> usize {
        if matches!(self.state, State::Results { .. }) { READ_LEN_BETWEEN } else { READ_LEN }
    }

    /// `results`: the expected number of results for the xid of a GETDATA call. After an error the
    /// stream is unusable.
    pub(super) fn next(
        &mut self,
        input: &mut &[u8],
        results: impl Fn(u32) -> Option<usize>,
    ) -> Result<Option<ReplyEvent>, RecordError> {
        loop {
            // A direct read may have completed a frame.
            if let Some(frame) = self.take_frame() {
                return Ok(Some(frame));
            }
            let announced = match self.marks.next(input)? {
                Next::More => return Ok(None),
                Next::End => match self.end() {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                },
                Next::Bytes(_) if input.is_empty() => return Ok(None),
                Next::Bytes(n) => n,
            };
            let whole = *input;
            let (taken, event) = self.take(&whole[..announced.min(whole.len())], &results);
            *input = &whole[taken..];
            self.marks.took(taken);
            if event.is_some() {
                return Ok(event);
            }
        }
    }

    fn take(
        &mut self,
        piece: &[u8],
        results: &impl Fn(u32) -> Option<usize>,
    ) -> (usize, Option<ReplyEvent>) {
        match &mut self.state {
            State::Whole { bytes, cut } => {
                let n = if *cut { piece.len().min(HEAD_LEN - bytes.len()) } else { piece.len() };
                bytes.extend_from_slice(&piece[..n]);
                if *cut && bytes.len() == HEAD_LEN {
                    *cut = false;
                    return (n, self.parse_head(results));
                }
                (n, None)
            }
            State::Results { part, left, xid } => match part {
                Part::Words(_, 0) if *left == 0 => {
                    let xid = *xid;
                    (
                        piece.len(),
                        Some(self.skip_rest(xid, "more than the results of GETDATA".into())),
                    )
                }
                Part::Words(words, have) => {
                    let wanted = if *have < 4 { 4 } else { 8 };
                    let n = piece.len().min(wanted - *have);
                    words[*have..*have + n].copy_from_slice(&piece[..n]);
                    *have += n;
                    let event = if *have == wanted { self.parse_words() } else { None };
                    (n, event)
                }
                Part::Frame { bytes, len } => {
                    let n = piece.len().min(*len - bytes.len());
                    bytes.extend_from_slice(&piece[..n]);
                    (n, None)
                }
                Part::Padding(_, zeros) => {
                    let n = piece.len().min(*zeros);
                    *zeros -= n;
                    if piece[..n].iter().any(|&byte| byte != 0) {
                        let xid = *xid;
                        return (
                            n,
                            Some(
                                self.skip_rest(xid, "GETDATA results: padding is not zero".into()),
                            ),
                        );
                    }
                    (n, None)
                }
            },
            State::Skipped => (piece.len(), None),
        }
    }

    fn parse_head(&mut self, results: &impl Fn(u32) -> Option<usize>) -> Option<ReplyEvent> {
        let State::Whole { bytes, .. } = &self.state else { return None };
        let word = |i: usize| {
            u32::from_be_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]])
        };
        let is_plain = (word(1), word(2), word(4), word(5)) == (1, 0, 0, 0);
        let (xid, count) = (word(0), word(6) as usize);
        let expected = results(xid).filter(|_| is_plain)?;
        if count != expected {
            return Some(
                self.skip_rest(xid, format!("answered {expected} handles with {count} results")),
            );
        }
        self.state = State::Results { xid, left: count, part: START };
        None
    }

    fn parse_words(&mut self) -> Option<ReplyEvent> {
        let State::Results { xid, left, part } = &mut self.state else { return None };
        let Part::Words(words, have) = part else { return None };
        let word = |at: usize| {
            u32::from_be_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]])
        };
        let (xid, status) = (*xid, word(0));
        match (status, *have) {
            (NOT_FOUND, _) => {
                (*left, *part) = (*left - 1, START);
                Some(ReplyEvent::Frame(xid, None))
            }
            (FOUND, 4) => None,
            (FOUND, _) if word(4) as usize <= FRAME_LEN_MAX => {
                let len = word(4) as usize;
                // Bounded by the frame limit; untouched memory costs nothing.
                *part = Part::Frame { bytes: Vec::with_capacity(len), len };
                None
            }
            (FOUND, _) => {
                let what = format!(
                    "GETDATA results: a frame of {} bytes, over the limit of {FRAME_LEN_MAX}",
                    word(4)
                );
                Some(self.skip_rest(xid, what))
            }
            _ => Some(self.skip_rest(xid, format!("GETDATA results: status {status}"))),
        }
    }

    fn take_frame(&mut self) -> Option<ReplyEvent> {
        let State::Results { xid, left, part } = &mut self.state else { return None };
        if let Part::Frame { bytes, len } = part
            && bytes.len() == *len
        {
            *part = Part::Padding(std::mem::take(bytes), len.next_multiple_of(4) - *len);
        }
        match part {
            Part::Padding(bytes, 0) => {
                let frame = Bytes::from(std::mem::take(bytes));
                (*left, *part) = (*left - 1, START);
                Some(ReplyEvent::Frame(*xid, Some(frame)))
            }
            _ => None,
        }
    }

    fn end(&mut self) -> Option<ReplyEvent> {
        match std::mem::replace(&mut self.state, BEGINNING) {
            State::Whole { bytes, .. } => Some(ReplyEvent::Reply(Bytes::from(bytes))),
            State::Results { xid, left: 0, part: Part::Words(_, 0) } => Some(ReplyEvent::End(xid)),
            State::Results { xid, .. } => {
                Some(ReplyEvent::Garbage(xid, "GETDATA results end early".into()))
            }
            State::Skipped => None,
        }
    }

    fn skip_rest(&mut self, xid: u32, why: String) -> ReplyEvent {
        self.state = State::Skipped;
        ReplyEvent::Garbage(xid, why)
    }
}

/// Fuzz entry point: events do not depend on read lengths, and the next reply arrives in any case.
pub(crate) fn exercise(input: &[u8]) {
    let Some((&[step, count, cut], rest)) = input.split_first_chunk() else { return };
    let (read_len, count) = (usize::from(step) * 37 + 1, usize::from(count % 8));
    let same = |stream: &[u8]| {
        let (slow, quick) =
            (parse_stream(stream, read_len, count), parse_stream(stream, usize::MAX, count));
        assert_eq!(slow.is_err(), quick.is_err());
        let quick = quick.unwrap_or_default();
        assert!(slow.is_err() || slow.is_ok_and(|slow| slow == quick), "the reads' lengths show");
        quick
    };
    same(rest);

    let mut body = (count as u32).to_be_bytes().to_vec();
    body.extend_from_slice(rest);
    let head = [EXERCISE_XID, 1, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
    let record = [&head, &body[..]].concat();
    let (first, last) = record.split_at(usize::from(cut).min(record.len()));
    let mut stream = (first.len() as u32).to_be_bytes().to_vec();
    stream.extend_from_slice(first);
    for record in [last, b"next"] {
        stream.extend_from_slice(&vouch_oncrpc::record_mark(record.len()));
        stream.extend_from_slice(record);
    }
    let mut found = same(&stream);
    assert_eq!(found.pop(), Some(ReplyEvent::Reply(Bytes::from_static(b"next"))));
    match vouch_tree::protocol::GetDataResult::from_xdr(&body) {
        Ok(whole) => {
            let frames = whole
                .frames
                .iter()
                .map(|frame| ReplyEvent::Frame(EXERCISE_XID, frame.map(Bytes::copy_from_slice)));
            assert!(frames.chain([ReplyEvent::End(EXERCISE_XID)]).eq(found));
        }
        Err(_) => assert!(matches!(found.pop(), Some(ReplyEvent::Garbage(EXERCISE_XID, _)))),
    }
}

const EXERCISE_XID: u32 = 7;

fn parse_stream(
    stream: &[u8],
    read_len: usize,
    count: usize,
) -> Result<Vec<ReplyEvent>, RecordError> {
    let (mut parser, mut found, mut at) = (ReplyParser::new(), Vec::new(), 0);
    while at < stream.len() {
        let input = match parser.direct_buffer() {
            Some((direct_buffer, most)) => {
                let n = most.min(read_len).min(stream.len() - at);
                direct_buffer.extend_from_slice(&stream[at..at + n]);
                parser.direct_read(n);
                at += n;
                &[][..]
            }
            None => {
                let n = parser.read_len().min(read_len).min(stream.len() - at);
                at += n;
                &stream[at - n..at]
            }
        };
        let mut input = input;
        while let Some(event) =
            parser.next(&mut input, |xid| (xid == EXERCISE_XID).then_some(count))?
        {
            found.push(event);
        }
        assert!(input.is_empty());
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
