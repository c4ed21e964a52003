//! Record marking (RFC 5531 §11): records as fragments on a byte stream.

use std::borrow::Cow;

use vouch_xdr::Writer;

/// Length of a fragment's header in bytes (RFC 5531, 11).
pub const RECORD_MARK_LEN: usize = 4;

/// Longest fragment: 31 bits (RFC 5531 §11).
pub(crate) const FRAGMENT_LEN_MAX: u32 = (1 << 31) - 1;

/// Empty fragments are legal (RFC 5531 §11): without a limit a record could stay open for ever.
pub const FRAGMENT_COUNT_MAX: u32 = 4096;

const LAST: u32 = 1 << 31;

/// Errors in record marks, always the peer's fault. Close the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum RecordError {
    #[error("RPC record of {len} bytes or more is over the limit of {max}")]
    TooLong { len: usize, max: usize },
    #[error("RPC record comes in more than {FRAGMENT_COUNT_MAX} fragments")]
    TooManyFragments,
}

/// Parses record marks of a byte stream. Holds no record bytes.
#[derive(Debug)]
pub struct RecordMarks {
    record_len_max: usize,
    len: usize,
    mark: [u8; RECORD_MARK_LEN],
    mark_len: usize,
    /// Bytes of the current fragment still to come; 0 within a header.
    fragment_left: usize,
    last: bool,
    fragments: u32,
}

/// The outcome of one step through a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// All input is used, and the record goes on.
    More,
    /// At least one byte of the record; see [`RecordMarks::took`].
    Bytes(usize),
    /// The record is complete.
    End,
}

impl RecordMarks {
    /// Records may have up to `record_len_max` bytes.
    pub const fn new(record_len_max: usize) -> Self {
        Self {
            record_len_max,
            len: 0,
            mark: [0; RECORD_MARK_LEN],
            mark_len: 0,
            fragment_left: 0,
            last: false,
            fragments: 0,
        }
    }

    /// Uses up input to the end of the record at most.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Next, RecordError> {
        loop {
            if self.fragment_left > 0 {
                return Ok(Next::Bytes(self.fragment_left));
            }
            if self.last {
                (self.last, self.fragments, self.len) = (false, 0, 0);
                return Ok(Next::End);
            }
            if !self.read_mark(input)? {
                return Ok(Next::More);
            }
        }
    }

    /// Announced bytes of the record not yet read.
    pub const fn left(&self) -> usize {
        self.fragment_left
    }

    /// Records that the caller read `n` bytes of [`Next::Bytes`].
    pub const fn took(&mut self, n: usize) {
        debug_assert!(n <= self.fragment_left, "no more than was announced");
        self.fragment_left -= n;
    }

    const fn ends(&self) -> bool {
        self.fragment_left == 0 && self.last
    }

    /// True between records, where the stream may end.
    pub const fn at_boundary(&self) -> bool {
        self.mark_len == 0 && self.fragments == 0
    }

    fn read_mark(&mut self, input: &mut &[u8]) -> Result<bool, RecordError> {
        let n = (RECORD_MARK_LEN - self.mark_len).min(input.len());
        let (piece, rest) = input.split_at(n);
        *input = rest;
        self.mark[self.mark_len..self.mark_len + n].copy_from_slice(piece);
        self.mark_len += n;
        if self.mark_len < RECORD_MARK_LEN {
            return Ok(false);
        }
        self.mark_len = 0;
        let mark = u32::from_be_bytes(self.mark);
        self.last = mark & LAST != 0;
        self.fragment_left = (mark & !LAST) as usize;
        self.fragments += 1;
        if self.fragments > FRAGMENT_COUNT_MAX {
            return Err(RecordError::TooManyFragments);
        }
        self.len += self.fragment_left;
        if self.len > self.record_len_max {
            return Err(RecordError::TooLong { len: self.len, max: self.record_len_max });
        }
        Ok(true)
    }
}

/// Memory: at most twice the bytes received of an incomplete record. An announced length allocates
/// nothing.
#[derive(Debug)]
pub struct RecordReader {
    marks: RecordMarks,
    record: Vec<u8>,
}

impl RecordReader {
    /// Refuses records longer than `record_len_max` bytes.
    pub const fn new(record_len_max: usize) -> Self {
        Self { marks: RecordMarks::new(record_len_max), record: Vec::new() }
    }

    /// Takes bytes from the front of `input` until a record is complete or `input` is empty. Call
    /// it until it returns `None`. A record in one fragment is borrowed; others are copied once.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Cow<'a, [u8]>>, RecordError> {
        loop {
            let n = match self.marks.next(input)? {
                Next::End => return Ok(Some(Cow::Owned(std::mem::take(&mut self.record)))),
                Next::Bytes(n) if !input.is_empty() => n.min(input.len()),
                _ => return Ok(None),
            };
            let (piece, rest) = input.split_at(n);
            *input = rest;
            self.marks.took(n);
            if self.marks.ends() && self.record.is_empty() {
                self.marks.next(input)?;
                return Ok(Some(Cow::Borrowed(piece)));
            }
            self.record.extend_from_slice(piece);
        }
    }

    /// True between two records.
    pub const fn at_boundary(&self) -> bool {
        self.marks.at_boundary()
    }

    /// Memory of an incomplete record, in bytes.
    pub fn held_len(&self) -> usize {
        self.record.capacity()
    }
}

/// The header of a record in a single fragment. Panics if `len` is over 2^31 − 1.
pub fn record_mark(len: usize) -> [u8; RECORD_MARK_LEN] {
    let len = u32::try_from(len).ok().filter(|&len| len <= FRAGMENT_LEN_MAX);
    (len.expect("records are limited well below 2 GiB by their senders") | LAST).to_be_bytes()
}

/// Reserves room for a record's header; pass the result to [`end_record`].
pub fn begin_record(w: &mut Writer) -> usize {
    let start = w.len();
    w.u32(0);
    start
}

/// `extra_len` bytes of the record go to the socket separately. Panics if the record is over 2^31 −
/// 1 bytes or `start` is wrong.
pub fn end_record(bytes: &mut [u8], start: usize, extra_len: usize) {
    let len = bytes.len() - start - RECORD_MARK_LEN + extra_len;
    bytes[start..start + RECORD_MARK_LEN].copy_from_slice(&record_mark(len));
}

/// Appends the record that the function writes.
pub fn write_record(w: &mut Writer, write: impl FnOnce(&mut Writer)) {
    let start = begin_record(w);
    write(w);
    end_record(w.bytes_mut(), start, 0);
}

/// The record that the function writes.
pub fn record(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::new();
    write_record(&mut w, write);
    w.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(reader: &mut RecordReader, mut input: &[u8]) -> Result<Vec<Vec<u8>>, RecordError> {
        let mut records = Vec::new();
        while let Some(record) = reader.next(&mut input)? {
            records.push(record.into_owned());
        }
        assert!(input.is_empty());
        Ok(records)
    }

    #[test]
    fn whole_record_is_borrowed_from_input() {
        // RFC 5531 §11: one bit "last" and 31 bits of length, big-endian.
        let bytes = [0x80, 0, 0, 4, 1, 2, 3, 4, 0x80];
        let mut input = &bytes[..];
        let mut reader = RecordReader::new(64);
        assert!(matches!(reader.next(&mut input), Ok(Some(Cow::Borrowed([1, 2, 3, 4])))));
        assert_eq!(reader.next(&mut input), Ok(None));
        assert!(!reader.at_boundary());
        assert_eq!(reader.held_len(), 0);
    }

    #[test]
    fn fragments_are_joined() {
        let bytes = [0, 0, 0, 2, 1, 2, 0, 0, 0, 0, 0x80, 0, 0, 1, 3, 0x80, 0, 0, 0];
        let mut reader = RecordReader::new(64);
        assert_eq!(cut(&mut reader, &bytes), Ok(vec![vec![1, 2, 3], vec![]]));
        assert!(reader.at_boundary());
        assert_eq!(cut(&mut reader, &[0, 0, 0, 1, 7]), Ok(vec![]));
        assert_eq!(
            cut(&mut reader, &[0x80, 0, 0, 0]),
            Ok(vec![vec![7]]),
            "ended by an empty fragment"
        );
    }

    #[test]
    fn length_over_limit_is_refused_and_none_is_allocated() {
        let mut reader = RecordReader::new(64);
        assert_eq!(
            cut(&mut reader, &[0xff; 4]),
            Err(RecordError::TooLong { len: 0x7fff_ffff, max: 64 })
        );
        assert_eq!(reader.held_len(), 0);
        let fragments = [0, 0, 0, 2, 1, 2, 0x80, 0, 0, 2];
        assert_eq!(
            cut(&mut RecordReader::new(3), &fragments),
            Err(RecordError::TooLong { len: 4, max: 3 })
        );
        let mut reader = RecordReader::new(1 << 30);
        assert_eq!(cut(&mut reader, &[0xa0, 0, 0, 0, 1]), Ok(vec![]));
        assert!(reader.held_len() < 64, "{}", reader.held_len());
    }

    #[test]
    fn endless_empty_fragments_are_refused_and_records_are_not() {
        let mut reader = RecordReader::new(64);
        for _ in 0..2 * FRAGMENT_COUNT_MAX {
            assert_eq!(cut(&mut reader, &[0x80, 0, 0, 0]), Ok(vec![vec![]]));
        }
        for _ in 0..FRAGMENT_COUNT_MAX {
            assert_eq!(cut(&mut reader, &[0; 4]), Ok(vec![]));
        }
        assert_eq!(cut(&mut reader, &[0; 4]), Err(RecordError::TooManyFragments));
    }

    #[test]
    fn end_record_counts_external_bytes() {
        let mut w = Writer::new();
        w.u32(9);
        let start = begin_record(&mut w);
        w.u32(1);
        let mut bytes = w.into_bytes();
        end_record(&mut bytes, start, 8);
        assert_eq!(bytes, [0, 0, 0, 9, 0x80, 0, 0, 12, 0, 0, 0, 1]);
    }

    proptest::proptest! {
        #[test]
        fn records_survive_any_fragments_and_reads(
            records: Vec<Vec<u8>>,
            fragment_len in 1usize..9,
            read_len in 1usize..17,
        ) {
            let mut stream = Vec::new();
            for record in &records {
                let mut rest = &record[..];
                while rest.len() > fragment_len {
                    let (piece, tail) = rest.split_at(fragment_len);
                    stream.extend_from_slice(&(piece.len() as u32).to_be_bytes());
                    stream.extend_from_slice(piece);
                    rest = tail;
                }
                stream.extend_from_slice(&record_mark(rest.len()));
                stream.extend_from_slice(rest);
            }
            let mut reader = RecordReader::new(1 << 20);
            let mut found = Vec::new();
            for read in stream.chunks(read_len) {
                found.extend(cut(&mut reader, read).unwrap());
            }
            proptest::prop_assert_eq!(found, records);
            proptest::prop_assert!(reader.at_boundary());
            proptest::prop_assert_eq!(reader.held_len(), 0);
        }

        #[test]
        fn garbage_never_panics_or_exceeds_limit(bytes: Vec<u8>, read_len in 1usize..9) {
            let mut reader = RecordReader::new(32);
            for read in bytes.chunks(read_len) {
                let Ok(records) = cut(&mut reader, read) else { return Ok(()) };
                proptest::prop_assert!(records.iter().all(|record| record.len() <= 32));
            }
        }
    }

    /// script/prove raises the bounds.
    fn bound(small: usize, large: usize) -> usize {
        if std::env::var_os("VOUCH_PROVE").is_some() { large } else { small }
    }

    /// All streams of a few short fragments and a part of a mark, cut in all ways into three reads.
    #[test]
    fn exhaustive_streams_are_cut_at_their_marks() {
        const LEN_MAX: usize = 3;
        for count in 0..=bound(3, 5) {
            for number in 0..6_usize.pow(count as u32) {
                let (mut stream, mut expected, mut record) = (Vec::new(), Ok(vec![]), Some(vec![]));
                for at in 0..count {
                    let kind = number / 6_usize.pow(at as u32) % 6;
                    let (len, is_last) = (kind % 3, kind >= 3);
                    let mark = len as u32 | if is_last { LAST } else { 0 };
                    stream.extend_from_slice(&mark.to_be_bytes());
                    let bytes: Vec<u8> = (0..len).map(|_| stream.len() as u8).collect();
                    stream.extend_from_slice(&bytes);
                    let Some(whole) = &mut record else { continue };
                    whole.extend_from_slice(&bytes);
                    if whole.len() > LEN_MAX {
                        let len = whole.len();
                        (expected, record) =
                            (Err(RecordError::TooLong { len, max: LEN_MAX }), None);
                    } else if is_last {
                        expected.as_mut().expect("no error before").push(std::mem::take(whole));
                    }
                }
                stream.extend_from_slice(&[0x80, 0, 0][..number % 4]);
                for first in 0..=stream.len() {
                    for second in first..=stream.len() {
                        let reads = [&stream[..first], &stream[first..second], &stream[second..]];
                        let mut reader = RecordReader::new(LEN_MAX);
                        let found: Result<Vec<_>, _> =
                            reads.iter().map(|read| cut(&mut reader, read)).collect();
                        assert_eq!(
                            found.map(|found| found.concat()),
                            expected,
                            "{stream:x?} {first} {second}"
                        );
                        assert!(reader.held_len() <= 4 * LEN_MAX.max(2));
                    }
                }
            }
        }
    }
}
