use std::io::{self, Read, Write};

use crate::{HEADER_LEN, PLAIN_LEN_MAX, RECORD_LEN_MAX, Sealer, Session, TAIL_LEN, TlsError};

/// Blocking or not. A reader with room for two records saves a copy. After a write to a
/// non-blocking stream, [`Write::flush`] sends the rest.
pub struct TlsStream<S> {
    stream: S,
    session: Box<Session>,
    pending: Vec<u8>,
    sent: usize,
    /// Opened data that a small reader has not taken yet.
    opened: Vec<u8>,
    taken: usize,
    /// The peer's `close_notify` was read.
    is_ended: bool,
}

const WRITE_LEN_MAX: usize = 16 * PLAIN_LEN_MAX;

impl<S> TlsStream<S> {
    /// Continues a session whose handshake is complete.
    pub fn new(stream: S, session: Box<Session>) -> Self {
        TlsStream {
            stream,
            session,
            pending: Vec::new(),
            sent: 0,
            opened: Vec::new(),
            taken: 0,
            is_ended: false,
        }
    }

    /// The stream below.
    pub const fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Sealed bytes wait for [`Write::flush`].
    pub fn has_pending(&self) -> bool {
        self.sent < self.pending.len()
    }
}

impl<S: Read> Read for TlsStream<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.len() >= 2 * RECORD_LEN_MAX && self.taken == self.opened.len() {
            return self.read_records(out);
        }
        if self.taken == self.opened.len() {
            let mut opened = vec![0; 2 * RECORD_LEN_MAX];
            let len = self.read_records(&mut opened)?;
            opened.truncate(len);
            (self.opened, self.taken) = (opened, 0);
        }
        let n = out.len().min(self.opened.len() - self.taken);
        out[..n].copy_from_slice(&self.opened[self.taken..self.taken + n]);
        self.taken += n;
        Ok(n)
    }
}

impl<S: Read> TlsStream<S> {
    fn read_records(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.is_ended {
            let has_record = self.session.opener.has_record();
            let held = self.session.opener.take_partial(out);
            let received = if has_record { Ok(0) } else { self.stream.read(&mut out[held..]) };
            let received = match received {
                Ok(received) => received,
                Err(error) => {
                    self.session.opener.put_back(&out[..held]);
                    return Err(error);
                }
            };
            if received == 0 && !has_record {
                // RFC 8446 §6.1: without close_notify the data may have been cut.
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the connection ended without the end of its TLS session",
                ));
            }
            let opened = self.session.opener.open(&mut out[..held + received]).map_err(as_io)?;
            if opened.must_update_key {
                self.session.sealer.update_key(&mut self.pending).map_err(as_io)?;
            }
            self.is_ended = opened.is_ended;
            if opened.len > 0 {
                return Ok(opened.len);
            }
        }
        Ok(0)
    }
}

impl<S: Write> Write for TlsStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let bytes = &bytes[..bytes.len().min(WRITE_LEN_MAX)];
        seal_all(&mut self.session.sealer, bytes, &mut self.pending).map_err(as_io)?;
        match self.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(bytes.len()),
            flushed => flushed.map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.pending.len() {
            match self.stream.write(&self.pending[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.sent += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.pending.clear();
        self.sent = 0;
        self.stream.flush()
    }
}

fn seal_all(sealer: &mut Sealer, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
    for piece in bytes.chunks(PLAIN_LEN_MAX) {
        if sealer.is_key_used_up() {
            sealer.update_key(out)?;
        }
        let start = out.len();
        out.resize(start + HEADER_LEN, 0);
        out.extend_from_slice(piece);
        out.resize(out.len() + TAIL_LEN, 0);
        sealer.seal(&mut out[start..], piece.len())?;
    }
    Ok(())
}

fn as_io(error: TlsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
