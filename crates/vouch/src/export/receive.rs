//! Bytes from a socket become records, in place: a record that lies in one fragment is lent from the buffer that the socket filled, and the data of a WRITE goes from
//! there to the file.
//!
//! Owns the receive buffers of a thread and what a connection keeps between two reads. A length that is merely announced allocates nothing: what a connection keeps
//! is what has come, and a whole receive buffer only once more than [`HELD_COPY_LEN_MAX`] of a record has come and fewer than [`HELD_BUFFERS_MAX`] are kept.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use bytes::{Bytes, BytesMut};
use rustix::net::RecvFlags;
use vouch_oncrpc::{FRAGMENT_COUNT_MAX, RECORD_MARK_LEN, RecordError};

use super::gss::{Looked, Protected};
use super::limits::{HELD_BUFFERS_MAX, HELD_COPY_LEN_MAX, READ_LEN, SPARE_BUFFERS_MAX};

/// The receive buffers of one thread.
pub(super) struct Buffers {
    record_len_max: usize,
    spare: Vec<BytesMut>,
    spare_max: usize,
    /// Whole buffers that connections keep.
    held: usize,
}

impl Buffers {
    /// Buffers for records of up to `record_len_max` bytes.
    pub(super) fn new(record_len_max: usize) -> Self {
        Buffers { record_len_max, spare: Vec::new(), spare_max: SPARE_BUFFERS_MAX.max(vouch_rpcsec_gss::long_wraps() + 2), held: 0 }
    }

    /// A buffer with room for the longest record and what may come with it. Memory is taken from the system as it is touched.
    fn take(&mut self) -> BytesMut {
        self.spare.pop().unwrap_or_else(|| BytesMut::zeroed(self.record_len_max + RECORD_MARK_LEN + READ_LEN))
    }

    /// Takes a buffer back if nobody else has a part of it any more.
    fn give_back(&mut self, bytes: Bytes) {
        if bytes.len() > self.record_len_max
            && self.spare.len() < self.spare_max
            && let Ok(buffer) = bytes.try_into_mut()
        {
            self.spare.push(buffer);
        }
    }
}

/// What a connection keeps of its input.
pub(super) struct Input {
    held: Held,
    /// Fragments of a record whose last has not come.
    joined: Vec<u8>,
    fragments: u32,
    /// What was looked at of the calls that were not taken up.
    looked: VecDeque<Looked>,
}

enum Held {
    Nothing,
    /// So much of a fragment, or calls that were not taken up.
    Copy(Box<[u8]>),
    /// The front of a long record in the buffer that it will be complete in.
    Buffer {
        buffer: BytesMut,
        len: usize,
    },
}

/// Bytes that were read, and that nobody else has a part of: whole records may be changed.
pub(super) struct Fresh {
    buffer: BytesMut,
    end: usize,
    pub(super) records: Records,
}

/// Bytes that were read, with the records in them.
pub(super) struct Batch {
    bytes: Bytes,
    at: usize,
    end: usize,
    /// Those of its records that were looked at, in order.
    looked: VecDeque<Looked>,
}

/// A record that was cut off.
pub(super) struct Record {
    pub(super) bytes: Bytes,
    pub(super) look: Look,
}

/// Whether a record was looked at before it was cut off.
pub(super) enum Look {
    /// It was; it may be under RPCSEC_GSS.
    Taken(Option<Protected>),
    /// It came in several fragments.
    Missing,
}

/// Which records bytes hold.
#[derive(Clone, Copy)]
pub(super) enum Records {
    /// Behind their marks; at first maybe the rest of one that has begun before.
    Marked { inside: bool },
    /// One, without its mark.
    Bare,
}

/// What reading came to.
pub(super) enum Read {
    /// Something came. `more`: the socket may have more.
    Some { fresh: Fresh, more: bool, len: usize },
    /// Nothing is there.
    Empty,
    /// The peer has closed its side.
    Closed,
}

impl Input {
    /// Nothing has come yet.
    pub(super) const fn new() -> Self {
        Input { held: Held::Nothing, joined: Vec::new(), fragments: 0, looked: VecDeque::new() }
    }

    /// Whether a record has begun and not ended.
    pub(super) fn is_inside_record(&self) -> bool {
        !matches!(self.held, Held::Nothing) || self.fragments > 0
    }

    /// Reads what is there, up to a chunk or to the end of a long record that has begun.
    pub(super) fn read(&mut self, socket: impl AsFd, buffers: &mut Buffers) -> io::Result<Read> {
        let (mut buffer, len) = match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Nothing => (buffers.take(), 0),
            Held::Copy(bytes) => {
                let mut buffer = buffers.take();
                if bytes.len() + READ_LEN > buffer.len() {
                    buffer.resize(bytes.len() + READ_LEN, 0);
                }
                buffer[..bytes.len()].copy_from_slice(&bytes);
                (buffer, bytes.len())
            }
            Held::Buffer { buffer, len } => {
                buffers.held -= 1;
                (buffer, len)
            }
        };
        let wanted = wanted(&buffer[..len]).clamp(1, buffer.len() - len);
        let result = rustix::io::retry_on_intr(|| rustix::net::recv(&socket, &mut buffer[len..len + wanted], RecvFlags::DONTWAIT));
        match result {
            Ok((0, _)) => Ok(Read::Closed),
            Ok((n, _)) => {
                let end = len + n;
                debug_assert!(self.looked.is_empty(), "what was looked at is taken up before more is read");
                let records = Records::Marked { inside: self.fragments > 0 };
                Ok(Read::Some { fresh: Fresh { buffer, end, records }, more: n == wanted, len: n })
            }
            Err(rustix::io::Errno::AGAIN) => {
                self.hold(buffer, len, buffers);
                Ok(Read::Empty)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Calls that were kept without a read: what `put_back` kept.
    pub(super) fn resume(&mut self) -> Option<Batch> {
        match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Copy(bytes) => {
                let bytes = Bytes::from(bytes);
                let end = bytes.len();
                Some(Batch { bytes, at: 0, end, looked: std::mem::take(&mut self.looked) })
            }
            held => {
                self.held = held;
                None
            }
        }
    }

    /// The next complete record of the batch. `None` when there is none; then give the batch to [`Input::put_back`].
    pub(super) fn next(&mut self, batch: &mut Batch, record_len_max: usize) -> Result<Option<Record>, RecordError> {
        loop {
            let Some((len, last)) = batch.mark() else { return Ok(None) };
            let whole = self.joined.len() + len;
            if whole > record_len_max {
                return Err(RecordError::TooLong { len: whole, max: record_len_max });
            }
            let start = batch.at + RECORD_MARK_LEN;
            if batch.end - start < len {
                return Ok(None);
            }
            batch.at = start + len;
            let piece = batch.bytes.slice(start..batch.at);
            if last && self.fragments == 0 {
                let looked = batch.looked.front().is_some_and(|looked| looked.start == start).then(|| batch.looked.pop_front()).flatten();
                return Ok(Some(Record { bytes: piece, look: Look::Taken(looked.map(|looked| looked.what)) }));
            }
            self.fragments += 1;
            if self.fragments > FRAGMENT_COUNT_MAX {
                return Err(RecordError::TooManyFragments);
            }
            self.joined.extend_from_slice(&piece);
            if last {
                self.fragments = 0;
                return Ok(Some(Record { bytes: Bytes::from(std::mem::take(&mut self.joined)), look: Look::Missing }));
            }
        }
    }

    /// Keeps what is left of a batch and gives its buffer back.
    pub(super) fn put_back(&mut self, batch: Batch, buffers: &mut Buffers) {
        let Batch { bytes, at, end, looked } = batch;
        let left = end - at;
        self.looked = looked;
        self.looked.iter_mut().for_each(|looked| looked.start -= at);
        if at == 0 && left > HELD_COPY_LEN_MAX && bytes.len() > buffers.record_len_max {
            // A whole receive buffer; no record was cut off, so nobody else has a part of it.
            match bytes.try_into_mut() {
                Ok(buffer) => self.hold(buffer, end, buffers),
                Err(bytes) => self.held = Held::Copy(bytes[..end].into()),
            }
            return;
        }
        if left > 0 {
            self.held = Held::Copy(bytes[at..end].into());
        }
        buffers.give_back(bytes);
    }

    fn hold(&mut self, buffer: BytesMut, len: usize, buffers: &mut Buffers) {
        if len == 0 {
            if buffers.spare.len() < buffers.spare_max {
                buffers.spare.push(buffer);
            }
        } else if len > HELD_COPY_LEN_MAX && buffers.held < HELD_BUFFERS_MAX {
            buffers.held += 1;
            self.held = Held::Buffer { buffer, len };
        } else {
            self.held = Held::Copy(buffer[..len].into());
            if buffers.spare.len() < buffers.spare_max {
                buffers.spare.push(buffer);
            }
        }
    }

    /// The connection is gone.
    pub(super) fn close(&mut self, buffers: &mut Buffers) {
        if let Held::Buffer { .. } = std::mem::replace(&mut self.held, Held::Nothing) {
            buffers.held -= 1;
        }
    }
}

impl Fresh {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.end]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.end]
    }

    /// Whether it is one record and nothing else: what is read next does not depend on it.
    pub(super) fn is_one_record(&self) -> bool {
        let alone = matches!(self.records, Records::Marked { inside: false });
        alone && mark(self.bytes()).is_some_and(|(len, last)| last && RECORD_MARK_LEN + len == self.end)
    }

    /// Whether not even its first fragment is whole: taking it up does nothing but keep it.
    pub(super) fn is_incomplete(&self) -> bool {
        mark(self.bytes()).is_none_or(|(len, _)| RECORD_MARK_LEN + len > self.end)
    }

    /// What is to be taken up, with what was found in it.
    pub(super) fn into_batch(self, looked: VecDeque<Looked>) -> Batch {
        Batch { bytes: self.buffer.freeze(), at: 0, end: self.end, looked }
    }
}

impl Batch {
    /// Whether bytes are left that were not cut off.
    pub(super) fn is_empty(&self) -> bool {
        self.at == self.end
    }

    fn mark(&self) -> Option<(usize, bool)> {
        mark(&self.bytes[self.at..self.end])
    }
}

impl Records {
    /// Where the records lie that are whole and of one fragment.
    pub(super) fn of(self, bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
        let (mut at, mut inside, bare) = match self {
            Records::Marked { inside } => (0, inside, false),
            Records::Bare => (0, false, true),
        };
        std::iter::from_fn(move || {
            if bare {
                return (std::mem::replace(&mut at, bytes.len()) == 0 && !bytes.is_empty()).then_some(0..bytes.len());
            }
            loop {
                let (len, last) = mark(&bytes[at..])?;
                let start = at + RECORD_MARK_LEN;
                if bytes.len() - start < len {
                    return None;
                }
                at = start + len;
                let alone = last && !inside;
                inside = !last;
                if alone {
                    return Some(start..at);
                }
            }
        })
    }
}

/// Length of the fragment that starts here, and whether it is a record's last.
fn mark(bytes: &[u8]) -> Option<(usize, bool)> {
    let mark = u32::from_be_bytes(*bytes.first_chunk::<RECORD_MARK_LEN>()?);
    Some(((mark & !LAST) as usize, mark & LAST != 0))
}

/// How much to ask the socket for after these bytes: up to the end of a long record that has begun, so that the next begins at the front of a buffer; else a chunk.
fn wanted(held: &[u8]) -> usize {
    match mark(held) {
        Some((len, _)) if RECORD_MARK_LEN + len > held.len() + READ_LEN => RECORD_MARK_LEN + len - held.len(),
        Some((len, _)) if len > READ_LEN && RECORD_MARK_LEN + len > held.len() => RECORD_MARK_LEN + len - held.len(),
        _ => READ_LEN,
    }
}

const LAST: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use vouch_oncrpc::record_mark;

    const MAX: usize = 300_000;

    /// Sends `stream` in pieces, reads as a worker does, and stops taking calls up after every `stop` records.
    fn pass(stream: &[u8], piece_len: usize, stop: usize) -> Result<Vec<Vec<u8>>, RecordError> {
        let (here, mut there) = UnixStream::pair().unwrap();
        let (mut input, mut buffers, mut records) = (Input::new(), Buffers::new(MAX), Vec::new());
        for piece in stream.chunks(piece_len) {
            there.write_all(piece).unwrap();
            loop {
                let (mut batch, more) = match input.read(&here, &mut buffers).unwrap() {
                    Read::Some { fresh, more, .. } => (fresh.into_batch(VecDeque::new()), more),
                    Read::Empty => break,
                    Read::Closed => unreachable!("the other end is open"),
                };
                loop {
                    let mut taken = 0;
                    while taken < stop {
                        let Some(record) = input.next(&mut batch, MAX)? else { break };
                        records.push(record.bytes.to_vec());
                        taken += 1;
                    }
                    input.put_back(batch, &mut buffers);
                    if taken < stop {
                        break;
                    }
                    let Some(again) = input.resume() else { break };
                    batch = again;
                }
                if !more {
                    break;
                }
            }
        }
        assert!(buffers.held <= 1);
        Ok(records)
    }

    fn stream_of(records: &[Vec<u8>], fragment_len: usize) -> Vec<u8> {
        let mut stream = Vec::new();
        for record in records {
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
        stream
    }

    #[test]
    fn long_records_between_short_ones_arrive_whole() {
        let records: Vec<Vec<u8>> = [10, 250_000, 0, 70_000, 65_536, 3, 300_000, 299_999]
            .iter()
            .map(|&len| (0..len).map(|i| (i * 7 + len) as u8).collect())
            .collect();
        let stream = stream_of(&records, usize::MAX);
        for piece_len in [1_000, 65_000, 150_000] {
            assert!(pass(&stream, piece_len, usize::MAX).unwrap() == records);
        }
        assert!(pass(&stream_of(&records, 50_000), 100_000, 2).unwrap() == records);
    }

    #[test]
    fn announced_length_over_the_limit_is_refused() {
        let stream = (0x8000_0000 | (MAX as u32 + 1)).to_be_bytes();
        assert_eq!(pass(&stream, 4, 9), Err(RecordError::TooLong { len: MAX + 1, max: MAX }));
    }

    #[test]
    fn endless_empty_fragments_are_refused() {
        assert_eq!(pass(&vec![0; 4 * 5000], 20_000, 9), Err(RecordError::TooManyFragments));
    }

    #[test]
    fn announced_length_costs_what_has_come() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let (mut input, mut buffers) = (Input::new(), Buffers::new(MAX));
        there.write_all(&[0x80, 0, 0xff, 0, 1, 2]).unwrap();
        let Ok(Read::Some { fresh, .. }) = input.read(&here, &mut buffers) else { panic!("something came") };
        assert!(fresh.is_incomplete() && !fresh.is_one_record());
        let mut batch = fresh.into_batch(VecDeque::new());
        assert!(input.next(&mut batch, MAX).unwrap().is_none());
        input.put_back(batch, &mut buffers);
        assert!(matches!(&input.held, Held::Copy(bytes) if bytes.len() == 6));
        assert_eq!(buffers.spare.len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn records_survive_any_fragments_reads_and_stops(
            records in proptest::collection::vec(proptest::collection::vec(0u8.., 0..40), 0..20),
            fragment_len in 1usize..30,
            piece_len in 1usize..50,
            stop in 1usize..5,
        ) {
            proptest::prop_assert_eq!(pass(&stream_of(&records, fragment_len), piece_len, stop).unwrap(), records);
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>, piece_len in 1usize..9) {
            if let Ok(records) = pass(&bytes, piece_len, 3) {
                proptest::prop_assert!(records.iter().all(|record| record.len() <= MAX));
            }
        }
    }
}
