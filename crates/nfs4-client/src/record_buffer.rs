//! A receive buffer that lends whole records, for the driver that must not allocate per call.

use std::borrow::Cow;
use std::io::Read;

use vouch_oncrpc::{RECORD_MARK_LEN, RecordReader};

use crate::Error;

/// Bytes of a stream, and the records in them. Its memory grows to the longest record that the caller allows, as its bytes come.
#[derive(Debug)]
pub struct RecordBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    record_len_max: usize,
    reader: RecordReader,
    drained: bool,
}

/// How much is asked of the socket at a time, at least.
const READ_LEN: usize = 256 * 1024;

impl RecordBuffer {
    /// Takes records of up to `record_len_max` bytes.
    pub fn new(record_len_max: usize) -> Self {
        Self { bytes: vec![0; 2 * READ_LEN], start: 0, end: 0, record_len_max, reader: RecordReader::new(record_len_max), drained: false }
    }

    /// Reads once; zero at the stream's end.
    pub fn fill(&mut self, stream: &mut impl Read) -> std::io::Result<usize> {
        if self.start > 0 && self.bytes.len() - self.end < READ_LEN {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.bytes.len() - self.end < READ_LEN {
            self.bytes.resize(self.bytes.len() + READ_LEN, 0);
        }
        let n = stream.read(&mut self.bytes[self.end..])?;
        self.drained = n < self.bytes.len() - self.end;
        self.end += n;
        Ok(n)
    }

    /// Whether the last read left nothing in the socket: it gave less than was asked for (epoll(7), on edge-triggered use), so that another
    /// would only say so.
    pub const fn is_drained(&self) -> bool {
        self.drained
    }

    /// The next record that has come whole.
    pub fn next_record(&mut self) -> Result<Option<Cow<'_, [u8]>>, Error> {
        loop {
            let bytes = &self.bytes[self.start..self.end];
            let Some(&mark) = bytes.first_chunk::<RECORD_MARK_LEN>() else { return Ok(None) };
            let mark = u32::from_be_bytes(mark);
            // A fragment that is incomplete waits here, so that the reader lends it whole; unless it is too long, which the reader finds.
            let len = (mark & (u32::MAX >> 1)) as usize;
            if len <= self.record_len_max && bytes.len() < RECORD_MARK_LEN + len {
                return Ok(None);
            }
            let start = self.start;
            self.start += bytes.len().min(RECORD_MARK_LEN + len);
            let mut input = &self.bytes[start..self.start];
            if mark >> 31 == 1 || len > self.record_len_max {
                return Ok(self.reader.next(&mut input)?);
            }
            let none = self.reader.next(&mut input)?;
            debug_assert!(none.is_none(), "only a last fragment ends a record");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut buffer = RecordBuffer::new(64);
        let mut records = Vec::new();
        for chunk in chunks {
            assert_eq!(buffer.fill(&mut &chunk[..]).unwrap(), chunk.len());
            while let Some(record) = buffer.next_record().unwrap() {
                records.push(record.into_owned());
            }
        }
        records
    }

    #[test]
    fn records_come_whole_however_they_are_cut() {
        // RFC 5531, section 11: the second record is two fragments.
        let stream = [&[0x80, 0, 0, 2, 1, 2][..], &[0, 0, 0, 1, 3], &[0x80, 0, 0, 1, 4]].concat();
        let whole = [vec![1, 2], vec![3, 4]];
        assert_eq!(records(&[&stream]), whole);
        for at in 1..stream.len() {
            assert_eq!(records(&[&stream[..at], &stream[at..]]), whole, "{at}");
        }
    }

    #[test]
    fn a_record_over_the_limit_is_refused_before_it_has_come() {
        let mut buffer = RecordBuffer::new(64);
        buffer.fill(&mut &[0xff, 0xff, 0xff, 0xff][..]).unwrap();
        assert!(matches!(buffer.next_record(), Err(Error::Stream(_))));
    }
}
