//! Seals the output of a connection. Plain output stays in its queue until the socket takes it.
//! Only then is file data read and sealed, straight into the record that is sent.

use std::cell::RefCell;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;

use rustix::net::SendFlags;
use vouch_rpc_tls::{HEADER_LEN, PLAIN_LEN_MAX, Sealer, TAIL_LEN, TlsError};
use vouch_vfs::FileSpan;

use crate::transport::output::{Output, Piece};
use crate::transport::send::Sent;

#[derive(Default)]
pub(crate) struct TlsOutput {
    /// `None` during the handshake.
    sealer: Option<Sealer>,
    /// Handshake messages, and records that the socket did not take.
    pending: Vec<u8>,
    sent: usize,
}

/// Records of one system call: they fit the second-level cache of a core, and one reply of 1 MiB
/// takes four calls.
const RECORDS_AT_ONCE: usize = 16;
const SCRATCH_LEN: usize = RECORDS_AT_ONCE * (HEADER_LEN + PLAIN_LEN_MAX + TAIL_LEN);

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl TlsOutput {
    pub(crate) fn push_handshake(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    pub(crate) fn set_sealer(&mut self, sealer: Sealer) {
        self.sealer = Some(sealer);
    }

    pub(crate) fn update_key(&mut self) -> Result<(), TlsError> {
        self.sealer.as_mut().map_or(Ok(()), |sealer| sealer.update_key(&mut self.pending))
    }

    /// Sends close_notify.
    pub(crate) fn close(&mut self) -> Result<(), TlsError> {
        self.sealer.take().map_or(Ok(()), |mut sealer| sealer.close(&mut self.pending))
    }

    pub(crate) fn pending_len(&self) -> usize {
        self.pending.len() - self.sent
    }

    /// Seals and sends as much as the socket takes. `sent` counts bytes on the wire; `done` gets
    /// buffers of sealed replies.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        output: &mut Output,
        sent: &mut u64,
        mut done: impl FnMut(Vec<u8>),
    ) -> io::Result<Sent> {
        loop {
            while self.sent < self.pending.len() {
                let Some(n) = send_some(socket, &self.pending[self.sent..])? else { return Ok(Sent::Full) };
                self.sent += n;
                *sent += n as u64;
            }
            (self.pending, self.sent) = (Vec::new(), 0);
            let Some(sealer) = self.sealer.as_mut().filter(|_| !output.is_empty()) else { return Ok(Sent::All) };
            if sealer.is_key_used_up() {
                sealer.update_key(&mut self.pending).map_err(io::Error::other)?;
                continue;
            }
            let full = SCRATCH.with_borrow_mut(|scratch| {
                scratch.resize(SCRATCH_LEN, 0);
                let len = seal_records(sealer, scratch, output, &mut done)?;
                let n = send_some(socket, &scratch[..len])?.unwrap_or(0);
                *sent += n as u64;
                self.pending.extend_from_slice(&scratch[n..len]);
                Ok::<_, io::Error>(n == 0)
            })?;
            if full {
                return Ok(Sent::Full);
            }
        }
    }
}

/// Fills `scratch` with records. Small replies share a record.
fn seal_records(sealer: &mut Sealer, scratch: &mut [u8], output: &mut Output, done: &mut impl FnMut(Vec<u8>)) -> io::Result<usize> {
    let mut at = 0;
    while !output.is_empty() && scratch.len() - at >= HEADER_LEN + PLAIN_LEN_MAX + TAIL_LEN {
        let record = &mut scratch[at..];
        let len = fill(&mut record[HEADER_LEN..HEADER_LEN + PLAIN_LEN_MAX], output)?;
        output.advance(len, &mut *done);
        at += sealer.seal(record, len).map_err(io::Error::other)?;
        if sealer.is_key_used_up() {
            break;
        }
    }
    Ok(at)
}

fn fill(plain: &mut [u8], output: &Output) -> io::Result<usize> {
    let (mut len, mut failed) = (0, None);
    output.pieces(|piece| {
        match piece {
            Piece::Bytes(bytes) => {
                let n = bytes.len().min(plain.len() - len);
                plain[len..len + n].copy_from_slice(&bytes[..n]);
                len += n;
            }
            Piece::Span(span, from) => {
                let n = (span.len - from).min(plain.len() - len);
                failed = read_span(span, from, &mut plain[len..len + n]).err();
                len += n;
            }
        }
        failed.is_none() && len < plain.len()
    });
    failed.map_or(Ok(len), Err)
}

/// If the file was shortened, zeros fill the promised length, like a concurrent read.
fn read_span(span: &FileSpan, from: usize, mut out: &mut [u8]) -> io::Result<()> {
    let mut offset = span.offset + from as u64;
    while !out.is_empty() {
        match span.file.read_at(out, offset) {
            Ok(0) => {
                out.fill(0);
                return Ok(());
            }
            Ok(n) => {
                offset += n as u64;
                out = &mut out[n..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// `None` if the socket is full.
fn send_some(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
    match rustix::io::retry_on_intr(|| rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)) {
        Ok(n) => Ok(Some(n)),
        Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
