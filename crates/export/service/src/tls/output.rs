//! File data is read and sealed only when the socket takes it, straight into the record that is
//! sent.

use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Once;

use rustix::net::SendFlags;
use vouch_rpc_tls::{HEADER_LEN, PLAIN_LEN_MAX, Sealer, TAIL_LEN, TlsError};
use vouch_vfs::FileSpan;

use super::kernel::{self, KernelSender};
use crate::transport::output::{Output, Piece};
use crate::transport::send::Sent;

#[derive(Default)]
pub(crate) struct TlsOutput {
    sealer: Option<Sealer>,
    /// Instead of the sealer.
    kernel: Option<KernelSender>,
    kernel_is_wanted: bool,
    records: Option<Records>,
    /// Messages of the handshake and of the session, which follow the records.
    messages: Vec<u8>,
    messages_sent: usize,
}

struct Records {
    buffer: Vec<u8>,
    at: usize,
    end: usize,
}

/// They fit the second-level cache of a core, and one reply of 1 MiB with its header takes four
/// calls.
const RECORDS_AT_ONCE: usize = 17;
const RECORD_LEN: usize = HEADER_LEN + PLAIN_LEN_MAX + TAIL_LEN;

static WARNING: Once = Once::new();

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// They belong to connections whose sockets were full.
const SPARE_BUFFERS_MAX: usize = 4;

impl Records {
    fn new() -> Self {
        let buffer = BUFFERS
            .with_borrow_mut(Vec::pop)
            .unwrap_or_else(|| vec![0; RECORDS_AT_ONCE * RECORD_LEN]);
        Records { buffer, at: 0, end: 0 }
    }

    fn send(&mut self, socket: BorrowedFd<'_>, sent: &mut u64) -> io::Result<bool> {
        let n = send_some(socket, &self.buffer[self.at..self.end])?;
        self.at += n;
        *sent += n as u64;
        Ok(self.at == self.end)
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // At the end of a thread there is no list any more.
        let _ = BUFFERS.try_with(|buffers| {
            let mut buffers = buffers.borrow_mut();
            if buffers.len() < SPARE_BUFFERS_MAX {
                buffers.push(buffer);
            }
        });
    }
}

impl TlsOutput {
    pub(crate) fn with_kernel(kernel_is_wanted: bool) -> Self {
        TlsOutput { kernel_is_wanted, ..Self::default() }
    }

    pub(crate) fn push_handshake(&mut self, bytes: &[u8]) {
        self.messages.extend_from_slice(bytes);
    }

    pub(crate) fn set_sealer(&mut self, sealer: Sealer) {
        self.sealer = Some(sealer);
    }

    pub(crate) fn update_key(&mut self) -> Result<(), TlsError> {
        if let Some(kernel) = &mut self.kernel {
            kernel.update_key();
        }
        self.sealer.as_mut().map_or(Ok(()), |sealer| sealer.update_key(&mut self.messages))
    }

    pub(crate) fn close(&mut self) -> Result<(), TlsError> {
        if let Some(kernel) = &mut self.kernel {
            kernel.close();
        }
        self.sealer.take().map_or(Ok(()), |mut sealer| sealer.close(&mut self.messages))
    }

    pub(crate) fn pending_len(&self) -> usize {
        self.records.as_ref().map_or(0, |records| records.end - records.at) + self.messages.len()
            - self.messages_sent
            + self.kernel.as_ref().map_or(0, |kernel| usize::from(kernel.has_messages()))
    }

    /// `sent` counts bytes on the wire; `done` gets buffers of sealed replies.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        output: &mut Output,
        sent: &mut u64,
        mut done: impl FnMut(Vec<u8>),
    ) -> io::Result<Sent> {
        loop {
            if !self.flush(socket, sent)? {
                return Ok(Sent::Full);
            }
            self.hand_to_kernel(socket);
            if let Some(kernel) = &mut self.kernel {
                return kernel.send(socket, output, sent, done);
            }
            let Some(sealer) = self.sealer.as_mut().filter(|_| !output.is_empty()) else {
                return Ok(Sent::All);
            };
            if sealer.is_key_used_up() {
                sealer.update_key(&mut self.messages).map_err(io::Error::other)?;
                continue;
            }
            let mut records = Records::new();
            records.end = seal_records(sealer, &mut records.buffer, output, &mut done)?;
            self.records = Some(records);
        }
    }

    /// What this process has sealed must have left.
    fn hand_to_kernel(&mut self, socket: BorrowedFd<'_>) {
        let Some(sealer) = self.sealer.as_ref().filter(|_| self.kernel_is_wanted) else { return };
        self.kernel_is_wanted = false;
        match kernel::take_over(socket, sealer) {
            Ok(()) => self.kernel = self.sealer.take().map(KernelSender::new),
            Err(error) => WARNING.call_once(|| {
                tracing::warn!("the kernel takes no TLS session, so this server encrypts itself: {error}; `modprobe tls`");
            }),
        }
    }

    fn flush(&mut self, socket: BorrowedFd<'_>, sent: &mut u64) -> io::Result<bool> {
        if let Some(records) = &mut self.records {
            if !records.send(socket, sent)? {
                return Ok(false);
            }
            self.records = None;
        }
        if !self.messages.is_empty() {
            let n = send_some(socket, &self.messages[self.messages_sent..])?;
            self.messages_sent += n;
            *sent += n as u64;
            if self.messages_sent < self.messages.len() {
                return Ok(false);
            }
            (self.messages, self.messages_sent) = (Vec::new(), 0);
        }
        Ok(true)
    }
}

/// All records but the last have full length. Small replies share a record.
fn seal_records(
    sealer: &mut Sealer,
    buffer: &mut [u8],
    output: &mut Output,
    done: &mut impl FnMut(Vec<u8>),
) -> io::Result<usize> {
    let count = RECORDS_AT_ONCE.min(usize::try_from(sealer.records_left()).unwrap_or(usize::MAX));
    let len = fill(&mut buffer[..count * RECORD_LEN], output)?;
    output.advance(len, &mut *done);
    let mut end = 0;
    for (at, record) in
        buffer.chunks_exact_mut(RECORD_LEN).enumerate().take(len.div_ceil(PLAIN_LEN_MAX))
    {
        end += sealer
            .seal(record, (len - at * PLAIN_LEN_MAX).min(PLAIN_LEN_MAX))
            .map_err(io::Error::other)?;
    }
    Ok(end)
}

fn fill(records: &mut [u8], output: &Output) -> io::Result<usize> {
    let room = records.len() / RECORD_LEN * PLAIN_LEN_MAX;
    let (mut len, mut failed) = (0, None);
    output.pieces(|piece| {
        match piece {
            Piece::Bytes(mut bytes) => {
                bytes = &bytes[..bytes.len().min(room - len)];
                for part in parts(records, len, bytes.len()) {
                    let (front, rest) = bytes.split_at(part.len());
                    part.copy_from_slice(front);
                    (bytes, len) = (rest, len + front.len());
                }
            }
            Piece::Span(span, from) => {
                let n = (span.len - from).min(room - len);
                // One system call for the parts of all records.
                let mut parts: Vec<_> = parts(records, len, n).map(IoSliceMut::new).collect();
                failed = read_span(span, from, &mut parts).err();
                len += n;
            }
        }
        failed.is_none() && len < room
    });
    failed.map_or(Ok(len), Err)
}

fn parts(records: &mut [u8], at: usize, mut len: usize) -> impl Iterator<Item = &mut [u8]> {
    let mut start = at % PLAIN_LEN_MAX;
    records.chunks_exact_mut(RECORD_LEN).skip(at / PLAIN_LEN_MAX).map_while(move |record| {
        if len == 0 {
            return None;
        }
        let end = PLAIN_LEN_MAX.min(start + len);
        let part = &mut record[HEADER_LEN + start..HEADER_LEN + end];
        (len, start) = (len - part.len(), 0);
        Some(part)
    })
}

/// If the file was shortened, zeros fill the promised length.
fn read_span(span: &FileSpan, from: usize, mut parts: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    let mut offset = span.offset + from as u64;
    while !parts.is_empty() {
        match rustix::io::retry_on_intr(|| rustix::io::preadv(&span.file, parts, offset))? {
            0 => {
                parts.iter_mut().for_each(|part| part.fill(0));
                return Ok(());
            }
            n => {
                offset += n as u64;
                IoSliceMut::advance_slices(&mut parts, n);
            }
        }
    }
    Ok(())
}

fn send_some(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    match rustix::io::retry_on_intr(|| {
        rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }) {
        Ok(n) => Ok(n),
        Err(rustix::io::Errno::AGAIN) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
