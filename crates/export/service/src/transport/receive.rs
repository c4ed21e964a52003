//! A record of one fragment is a slice of the receive buffer; WRITE data goes from there to the
//! file. An announced length allocates nothing. Bytes that a connection keeps count against the
//! quota of its address. It keeps a whole buffer only for more than [`HELD_COPY_LEN_MAX`] of a record.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use bytes::{Bytes, BytesMut};
use rustix::net::RecvFlags;
use vouch_oncrpc::{FRAGMENT_COUNT_MAX, RECORD_MARK_LEN, RecordError};
use vouch_rpc_tls::{HEADER_LEN, Opener, PLAIN_LEN_MAX, RECORD_LEN_MAX, TAIL_LEN, TlsError};

use crate::gss::{Protected, ProtectedRecord};
use crate::limits::{HELD_COPY_LEN_MAX, READ_LEN, READ_LEN_SHORT, SPARE_BUFFERS_MAX};
use crate::memory_quota::ReceiveCharge;

pub(crate) struct Buffers {
    record_len_max: usize,
    spare: Vec<BytesMut>,
    spare_max: usize,
}

impl Buffers {
    pub(crate) fn new(record_len_max: usize) -> Self {
        Buffers {
            record_len_max,
            spare: Vec::new(),
            spare_max: SPARE_BUFFERS_MAX.max(vouch_rpcsec_gss::long_wraps() + 2),
        }
    }

    /// Fits the longest record and one read. The kernel allocates pages on first use.
    fn take(&mut self) -> BytesMut {
        self.spare.pop().unwrap_or_else(|| BytesMut::zeroed(self.buffer_len()))
    }

    fn buffer_len(&self) -> usize {
        self.record_len_max + RECORD_MARK_LEN + READ_LEN + TLS_ROOM_MIN
    }

    /// Keeps the buffer unless a record still refers to it.
    fn give_back(&mut self, bytes: Bytes) {
        if bytes.len() > self.record_len_max
            && self.spare.len() < self.spare_max
            && let Ok(buffer) = bytes.try_into_mut()
        {
            self.spare.push(buffer);
        }
    }
}

pub(crate) struct Input {
    held: HeldBytes,
    joined: Vec<u8>,
    fragments: u32,
    sealed_len: usize,
    verified: VecDeque<ProtectedRecord>,
    charge: ReceiveCharge,
}

enum HeldBytes {
    Nothing,
    /// A part of a fragment, or calls to run later.
    Copy(Box<[u8]>),
    Buffer {
        buffer: BytesMut,
        len: usize,
    },
}

/// Exclusive access to its buffer, so that calls can be unsealed in place.
pub(crate) struct FreshRead {
    buffer: BytesMut,
    end: usize,
    pub(crate) records: Records,
}

pub(crate) struct Batch {
    bytes: Bytes,
    at: usize,
    end: usize,
    verified: VecDeque<ProtectedRecord>,
}

pub(crate) struct Record {
    pub(crate) bytes: Bytes,
    pub(crate) verification: Verification,
}

pub(crate) enum Verification {
    Done(Option<Protected>),
    Pending,
}

#[derive(Clone, Copy)]
pub(crate) enum Records {
    /// `inside`: the first bytes may continue an earlier record.
    Marked {
        inside: bool,
    },
    Bare,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

pub(crate) enum Read {
    /// `len`: bytes on the wire.
    Some {
        fresh: FreshRead,
        more: bool,
        len: usize,
        update_key: bool,
    },
    NoData {
        more: bool,
        update_key: bool,
    },
    Empty,
    Closed,
}

impl Input {
    pub(crate) fn new(charge: ReceiveCharge) -> Self {
        Input {
            held: HeldBytes::Nothing,
            joined: Vec::new(),
            fragments: 0,
            sealed_len: 0,
            verified: VecDeque::new(),
            charge,
        }
    }

    pub(crate) fn may_read(&mut self, buffers: &Buffers) -> bool {
        let held = match &self.held {
            HeldBytes::Nothing => &[][..],
            HeldBytes::Copy(bytes) => bytes,
            HeldBytes::Buffer { buffer, len } => &buffer[..*len],
        };
        let long = self.joined.len() > HELD_COPY_LEN_MAX
            || mark(held).is_some_and(|(len, _)| len > HELD_COPY_LEN_MAX);
        !long || self.charge.raise(buffers.buffer_len())
    }

    pub(crate) fn is_inside_record(&self) -> bool {
        !matches!(self.held, HeldBytes::Nothing) || self.fragments > 0 || self.sealed_len > 0
    }

    /// With `opener`, the socket's bytes are TLS records, which are opened in place. `len_max`: beside
    /// other clients. Then short calls are few too, because they are verified together.
    pub(crate) fn read(
        &mut self,
        socket: impl AsFd,
        buffers: &mut Buffers,
        opener: Option<&mut Opener>,
        len_max: usize,
    ) -> Result<Read, ReadError> {
        let (mut buffer, len) = match std::mem::replace(&mut self.held, HeldBytes::Nothing) {
            HeldBytes::Nothing => (buffers.take(), 0),
            HeldBytes::Copy(bytes) => {
                let mut buffer = buffers.take();
                if bytes.len() + READ_LEN > buffer.len() {
                    buffer.resize(bytes.len() + READ_LEN, 0);
                }
                buffer[..bytes.len()].copy_from_slice(&bytes);
                (buffer, bytes.len())
            }
            HeldBytes::Buffer { buffer, len } => (buffer, len),
        };
        let is_short = len_max < READ_LEN || self.charge.is_short(buffers.buffer_len());
        let chunk = if is_short { READ_LEN_SHORT } else { READ_LEN };
        let wanted = wanted(&buffer[..len], chunk).min(len_max);
        if let Some(opener) = opener {
            return self.read_tls(socket, buffers, opener, buffer, len, wanted);
        }
        let wanted = wanted.clamp(1, buffer.len() - len);
        let result = rustix::io::retry_on_intr(|| {
            rustix::net::recv(&socket, &mut buffer[len..len + wanted], RecvFlags::DONTWAIT)
        });
        match result {
            Ok((0, _)) => Ok(Read::Closed),
            Ok((n, _)) => {
                let end = len + n;
                debug_assert!(
                    self.verified.is_empty(),
                    "verified calls are run before the next read"
                );
                let records = Records::Marked { inside: self.fragments > 0 };
                Ok(Read::Some {
                    fresh: FreshRead { buffer, end, records },
                    more: n == wanted,
                    len: n,
                    update_key: false,
                })
            }
            Err(rustix::io::Errno::AGAIN) => {
                self.hold(buffer, len, buffers);
                Ok(Read::Empty)
            }
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    fn read_tls(
        &mut self,
        socket: impl AsFd,
        buffers: &mut Buffers,
        opener: &mut Opener,
        mut buffer: BytesMut,
        len: usize,
        wanted: usize,
    ) -> Result<Read, ReadError> {
        if buffer.len() < len + TLS_ROOM_MIN {
            buffer.resize(len + TLS_ROOM_MIN, 0);
        }
        let has_record = opener.has_record();
        let held = opener.take_partial(&mut buffer[len..]);
        let from = len + held;
        let mut received = 0;
        let mut more = true;
        // Calls behind the handshake were received with it.
        if !has_record {
            let overhead = (wanted / PLAIN_LEN_MAX + 1) * (HEADER_LEN + TAIL_LEN);
            let wanted = (wanted + overhead)
                .saturating_sub(held)
                .clamp(READ_LEN_SHORT.min(buffer.len() - from), buffer.len() - from);
            match rustix::io::retry_on_intr(|| {
                rustix::net::recv(&socket, &mut buffer[from..from + wanted], RecvFlags::DONTWAIT)
            }) {
                Ok((0, _)) => return Ok(Read::Closed),
                Ok((n, _)) => (received, more) = (n, n == wanted),
                Err(rustix::io::Errno::AGAIN) => {
                    opener.put_back(&buffer[len..from]);
                    self.hold(buffer, len, buffers);
                    return Ok(Read::Empty);
                }
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        let opened = opener.open(&mut buffer[len..from + received])?;
        self.sealed_len = opener.partial_len();
        let update_key = opened.must_update_key;
        if opened.len == 0 {
            if opened.is_ended {
                return Ok(Read::Closed);
            }
            self.hold(buffer, len, buffers);
            return Ok(Read::NoData { more, update_key });
        }
        let more = more || opened.is_ended;
        debug_assert!(self.verified.is_empty(), "verified calls are run before the next read");
        let records = Records::Marked { inside: self.fragments > 0 };
        Ok(Read::Some {
            fresh: FreshRead { buffer, end: len + opened.len, records },
            more,
            len: received,
            update_key,
        })
    }

    pub(crate) fn resume(&mut self) -> Option<Batch> {
        match std::mem::replace(&mut self.held, HeldBytes::Nothing) {
            HeldBytes::Copy(bytes) => {
                let bytes = Bytes::from(bytes);
                let end = bytes.len();
                Some(Batch { bytes, at: 0, end, verified: std::mem::take(&mut self.verified) })
            }
            held => {
                self.held = held;
                None
            }
        }
    }

    /// After `None`, call [`Input::put_back`].
    pub(crate) fn next(
        &mut self,
        batch: &mut Batch,
        record_len_max: usize,
    ) -> Result<Option<Record>, RecordError> {
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
                let verified = batch
                    .verified
                    .front()
                    .is_some_and(|verified| verified.start == start)
                    .then(|| batch.verified.pop_front())
                    .flatten();
                return Ok(Some(Record {
                    bytes: piece,
                    verification: Verification::Done(verified.map(|verified| verified.what)),
                }));
            }
            self.fragments += 1;
            if self.fragments > FRAGMENT_COUNT_MAX {
                return Err(RecordError::TooManyFragments);
            }
            self.joined.extend_from_slice(&piece);
            if last {
                self.fragments = 0;
                return Ok(Some(Record {
                    bytes: Bytes::from(std::mem::take(&mut self.joined)),
                    verification: Verification::Pending,
                }));
            }
        }
    }

    pub(crate) fn put_back(&mut self, batch: Batch, buffers: &mut Buffers) {
        let Batch { bytes, at, end, verified } = batch;
        let left = end - at;
        if left == 0 {
            // A begun record after a batched one stays in `held`, and charged.
            if matches!(self.held, HeldBytes::Nothing) {
                self.charge.set(self.joined.len() + self.sealed_len);
            }
            buffers.give_back(bytes);
            return;
        }
        self.verified = verified;
        self.verified.iter_mut().for_each(|verified| verified.start -= at);
        if at == 0 && left > HELD_COPY_LEN_MAX && bytes.len() > buffers.record_len_max {
            match bytes.try_into_mut() {
                Ok(buffer) => self.hold(buffer, end, buffers),
                Err(bytes) => self.keep_copy(&bytes[..end]),
            }
            return;
        }
        self.keep_copy(&bytes[at..end]);
        buffers.give_back(bytes);
    }

    fn keep_copy(&mut self, bytes: &[u8]) {
        self.charge.set(bytes.len() + self.joined.len() + self.sealed_len);
        if !bytes.is_empty() {
            self.held = HeldBytes::Copy(bytes.into());
        }
    }

    fn hold(&mut self, buffer: BytesMut, len: usize, buffers: &mut Buffers) {
        if len > HELD_COPY_LEN_MAX && self.charge.raise(buffers.buffer_len()) {
            self.held = HeldBytes::Buffer { buffer, len };
            return;
        }
        self.keep_copy(&buffer[..len]);
        if buffers.spare.len() < buffers.spare_max {
            buffers.spare.push(buffer);
        }
    }
}

impl FreshRead {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.end]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.end]
    }

    /// If true, the next read does not depend on this one.
    pub(crate) fn is_one_record(&self) -> bool {
        let alone = matches!(self.records, Records::Marked { inside: false });
        alone
            && mark(self.bytes())
                .is_some_and(|(len, last)| last && RECORD_MARK_LEN + len == self.end)
    }

    pub(crate) fn is_incomplete(&self) -> bool {
        mark(self.bytes()).is_none_or(|(len, _)| RECORD_MARK_LEN + len > self.end)
    }

    pub(crate) fn into_batch(self, verified: VecDeque<ProtectedRecord>) -> Batch {
        Batch { bytes: self.buffer.freeze(), at: 0, end: self.end, verified }
    }
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.end
    }

    pub(crate) fn left_len(&self) -> usize {
        self.end - self.at
    }

    fn mark(&self) -> Option<(usize, bool)> {
        mark(&self.bytes[self.at..self.end])
    }
}

impl Records {
    pub(crate) fn of(self, bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
        let (mut at, mut inside, bare) = match self {
            Records::Marked { inside } => (0, inside, false),
            Records::Bare => (0, false, true),
        };
        std::iter::from_fn(move || {
            if bare {
                return (std::mem::replace(&mut at, bytes.len()) == 0 && !bytes.is_empty())
                    .then_some(0..bytes.len());
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

fn mark(bytes: &[u8]) -> Option<(usize, bool)> {
    let mark = u32::from_be_bytes(*bytes.first_chunk::<RECORD_MARK_LEN>()?);
    Some(((mark & !LAST) as usize, mark & LAST != 0))
}

/// Up to the end of a long record, so that the next one begins at the front of a buffer.
fn wanted(held: &[u8], chunk: usize) -> usize {
    match mark(held) {
        Some((len, _)) if RECORD_MARK_LEN + len > held.len() + READ_LEN => {
            RECORD_MARK_LEN + len - held.len()
        }
        Some((len, _)) if len > READ_LEN && RECORD_MARK_LEN + len > held.len() => {
            RECORD_MARK_LEN + len - held.len()
        }
        _ => chunk,
    }
}

const LAST: u32 = 1 << 31;

/// An incomplete TLS record and the next read.
const TLS_ROOM_MIN: usize = 2 * RECORD_LEN_MAX;

#[cfg(test)]
mod tests;
