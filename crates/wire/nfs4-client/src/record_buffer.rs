//! Lends complete records without an allocation per record.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use vouch_oncrpc::{RECORD_MARK_LEN, RecordReader};

use crate::Error;

pub(crate) const fn fragment_len(mark: [u8; RECORD_MARK_LEN]) -> usize {
    (u32::from_be_bytes(mark) & (u32::MAX >> 1)) as usize
}

/// Grows up to the maximum record length as data arrives.
#[derive(Debug)]
pub struct RecordBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    record_len_max: usize,
    reader: RecordReader,
    /// The last fragment was not the last of its record.
    in_fragmented_record: bool,
    fault: Option<Error>,
    is_drained: bool,
    joined: Vec<Vec<u8>>,
    taken: Vec<Option<Range<usize>>>,
}

const READ_LEN: usize = 256 * 1024;

impl RecordBuffer {
    /// A buffer for records of up to `record_len_max` bytes.
    pub fn new(record_len_max: usize) -> Self {
        let reader = RecordReader::new(record_len_max);
        let (joined, taken) = (Vec::new(), Vec::new());
        Self {
            bytes: vec![0; 2 * READ_LEN],
            start: 0,
            end: 0,
            record_len_max,
            reader,
            in_fragmented_record: false,
            fault: None,
            is_drained: false,
            joined,
            taken,
        }
    }

    /// Reads once from the stream. Returns the number of bytes, 0 at its end.
    pub fn fill(&mut self, stream: &mut impl Read) -> std::io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.start > 0 && self.bytes.len() - self.end < READ_LEN {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.bytes.len() - self.end < READ_LEN {
            self.bytes.resize(self.bytes.len() + READ_LEN, 0);
        }
        let n = stream.read(&mut self.bytes[self.end..])?;
        self.is_drained = n < self.bytes.len() - self.end;
        self.end += n;
        Ok(n)
    }

    /// The last read did not fill the buffer, so another would only return EAGAIN (epoll(7),
    /// edge-triggered use).
    pub(crate) const fn is_drained(&self) -> bool {
        self.is_drained
    }

    pub(crate) const fn buffered_len(&self) -> usize {
        self.end - self.start
    }

    /// In order, modifiable in place. An error is reported after the preceding records.
    pub fn take(&mut self) -> Result<Vec<&mut [u8]>, Error> {
        self.taken.clear();
        self.joined.clear();
        while self.fault.is_none() {
            match self.next_record() {
                Ok(Some(record)) => self.taken.push(record),
                Ok(None) => break,
                Err(error) => self.fault = Some(error),
            }
        }
        if self.taken.is_empty()
            && let Some(fault) = self.fault.take()
        {
            return Err(fault);
        }
        let mut records = Vec::with_capacity(self.taken.len());
        let (mut rest, mut at) = (&mut self.bytes[..], 0);
        let mut joined = self.joined.iter_mut();
        for taken in &self.taken {
            match taken {
                Some(range) => {
                    let (record, behind) = rest[range.start - at..].split_at_mut(range.len());
                    (rest, at) = (behind, range.end);
                    records.push(record);
                }
                None => records.extend(joined.next().map(Vec::as_mut_slice)),
            }
        }
        Ok(records)
    }

    fn next_record(&mut self) -> Result<Option<Option<Range<usize>>>, Error> {
        loop {
            let bytes = &self.bytes[self.start..self.end];
            let Some(&mark) = bytes.first_chunk::<RECORD_MARK_LEN>() else { return Ok(None) };
            let mark = u32::from_be_bytes(mark);
            let (len, last) = ((mark & (u32::MAX >> 1)) as usize, mark >> 31 == 1);
            let whole = bytes.len() >= RECORD_MARK_LEN + len;
            if len <= self.record_len_max && !whole {
                return Ok(None);
            }
            let start = self.start;
            if last && whole && !self.in_fragmented_record && len <= self.record_len_max {
                self.start += RECORD_MARK_LEN + len;
                return Ok(Some(Some(start + RECORD_MARK_LEN..self.start)));
            }
            let end = start + bytes.len().min(RECORD_MARK_LEN + len);
            let record = self.reader.next(&mut &self.bytes[start..end])?.map(Cow::into_owned);
            (self.start, self.in_fragmented_record) = (end, record.is_none());
            if let Some(record) = record {
                self.joined.push(record);
                return Ok(Some(None));
            }
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
            records.extend(buffer.take().unwrap().into_iter().map(|record| record.to_vec()));
        }
        records
    }

    #[test]
    fn takes_complete_records_from_any_split_of_the_stream() {
        // RFC 5531 §11.
        let stream = [&[0x80, 0, 0, 2, 1, 2][..], &[0, 0, 0, 1, 3], &[0x80, 0, 0, 1, 4]].concat();
        let whole = [vec![1, 2], vec![3, 4]];
        assert_eq!(records(&[&stream]), whole);
        for at in 1..stream.len() {
            assert_eq!(records(&[&stream[..at], &stream[at..]]), whole, "{at}");
        }
    }

    #[test]
    fn refuses_long_record_at_its_mark_after_earlier_records() {
        let mut buffer = RecordBuffer::new(64);
        buffer
            .fill(&mut &[0x80, 0, 0, 1, 7, 0x80, 0, 0, 1, 8, 0xff, 0xff, 0xff, 0xff][..])
            .unwrap();
        assert_eq!(buffer.take().unwrap(), [[7], [8]]);
        assert!(matches!(buffer.take(), Err(Error::Stream(_))));
    }
}
