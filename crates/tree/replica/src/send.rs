//! Pack runs by sendfile, other bytes from a buffer of the thread. Unsent bytes are read again from
//! their file.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::SendFlags;

use super::limits::{SEND_BUFFER_LEN, SENDFILE_LEN_MIN};
use super::output::{Output, Piece, Span};

#[derive(Debug)]
pub(super) enum SendError<F> {
    Peer,
    File { place: Span<F>, error: io::Error },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Sent(u64),
    Full(u64),
}

pub(super) struct SendBuffer {
    bytes: Box<[u8; SEND_BUFFER_LEN]>,
    len: usize,
}

impl SendBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: Box::new([0; SEND_BUFFER_LEN]), len: 0 }
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.len..]
    }

    fn append(&mut self, bytes: &[u8]) {
        let room = self.room();
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.len += n;
    }

    fn append_file<F: AsFd>(&mut self, span: &Span<F>) -> io::Result<()> {
        let (file, end) = (span.file.as_fd(), span.offset + span.len);
        let mut at = span.offset;
        while at < end && self.len < SEND_BUFFER_LEN {
            let room = self.room();
            let want = room.len().min((end - at) as usize);
            match rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut room[..want], at))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => {
                    self.len += n;
                    at += n as u64;
                }
            }
        }
        Ok(())
    }
}

pub(super) fn step<F: AsFd + Clone + PartialEq>(
    socket: BorrowedFd<'_>,
    output: &Output<F>,
    buffer: &mut SendBuffer,
) -> Result<Step, SendError<F>> {
    if let Some(Piece::File(span)) = output.pieces().next()
        && span.len >= SENDFILE_LEN_MIN
    {
        return send_span(socket, span);
    }
    let more = gather(output, buffer, SENDFILE_LEN_MIN)?;
    let flags = SendFlags::NOSIGNAL
        | SendFlags::DONTWAIT
        | if more { SendFlags::MORE } else { SendFlags::empty() };
    let bytes = &buffer.bytes[..buffer.len];
    match rustix::io::retry_on_intr(|| rustix::net::send(socket, bytes, flags)) {
        Ok(n) if n < bytes.len() => Ok(Step::Full(n as u64)),
        Ok(n) => Ok(Step::Sent(n as u64)),
        Err(rustix::io::Errno::AGAIN) => Ok(Step::Full(0)),
        Err(_) => Err(SendError::Peer),
    }
}

fn send_span<F: AsFd + Clone>(
    socket: BorrowedFd<'_>,
    span: &Span<F>,
) -> Result<Step, SendError<F>> {
    let mut at = span.offset;
    let len = usize::try_from(span.len).unwrap_or(usize::MAX);
    let failed = |error| SendError::File { place: span.clone(), error };
    match rustix::io::retry_on_intr(|| {
        rustix::fs::sendfile(socket, span.file.as_fd(), Some(&mut at), len)
    }) {
        Ok(0) => Err(failed(io::ErrorKind::UnexpectedEof.into())),
        Ok(n) => Ok(Step::Sent(n as u64)),
        Err(rustix::io::Errno::AGAIN) => Ok(Step::Full(0)),
        Err(rustix::io::Errno::IO) => Err(failed(rustix::io::Errno::IO.into())),
        Err(_) => Err(SendError::Peer),
    }
}

pub(super) fn copied<'a, F: AsFd + Clone + PartialEq>(
    output: &Output<F>,
    buffer: &'a mut SendBuffer,
) -> Result<&'a [u8], SendError<F>> {
    gather(output, buffer, u64::MAX)?;
    Ok(&buffer.bytes[..buffer.len])
}

/// Fills the buffer up to a run for sendfile. True if more follows.
fn gather<F: AsFd + Clone + PartialEq>(
    output: &Output<F>,
    buffer: &mut SendBuffer,
    sendfile_len_min: u64,
) -> Result<bool, SendError<F>> {
    buffer.len = 0;
    for piece in output.pieces() {
        match piece {
            Piece::Own { bytes, sent } => buffer.append(&bytes[*sent..]),
            Piece::Shared { bytes, sent } => buffer.append(&bytes[*sent..]),
            Piece::File(span) if span.len >= sendfile_len_min => return Ok(true),
            Piece::File(span) => buffer
                .append_file(span)
                .map_err(|error| SendError::File { place: span.clone(), error })?,
        }
        if buffer.len == SEND_BUFFER_LEN {
            break;
        }
    }
    Ok(output.len() > buffer.len as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Span;
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    #[derive(Debug, Clone)]
    struct Shared(Arc<File>);

    impl PartialEq for Shared {
        fn eq(&self, other: &Self) -> bool {
            Arc::ptr_eq(&self.0, &other.0)
        }
    }

    impl AsFd for Shared {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    fn file(len: usize) -> (Shared, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        (Shared(Arc::new(file)), bytes)
    }

    #[test]
    fn mixed_output_arrives_in_order_through_small_socket() {
        let (file, bytes) = file(300_000);
        let mut output = Output::new();
        let mut expected = Vec::new();
        for (offset, len) in
            [(0, 100), (5, 16_000), (20_000, 200_000), (1, 16_384), (7, 16_383), (299_999, 1)]
        {
            output.push_bytes(b"head");
            output.push_shared(vec![9; 70_000].into(), 3);
            output.push_span(Span { file: file.clone(), offset: offset as u64, len: len as u64 });
            expected.extend_from_slice(b"head");
            expected.extend_from_slice(&[9; 69_997]);
            expected.extend_from_slice(&bytes[offset..offset + len]);
        }
        let (here, mut there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        there.set_nonblocking(true).unwrap();
        let (mut buffer, mut arrived) = (SendBuffer::new(), Vec::new());
        while !output.is_empty() {
            match step(here.as_fd(), &output, &mut buffer).unwrap() {
                Step::Sent(n) => output.advance(n),
                Step::Full(n) => {
                    output.advance(n);
                    let mut read = [0; 5000];
                    let n = there.read(&mut read).unwrap();
                    arrived.extend_from_slice(&read[..n]);
                }
            }
        }
        drop(here);
        there.set_nonblocking(false).unwrap();
        there.read_to_end(&mut arrived).unwrap();
        assert!(arrived == expected);
    }

    #[test]
    fn truncated_file_is_a_file_error() {
        let (file, _) = file(100);
        let (here, _there) = UnixStream::pair().unwrap();
        for len in [200, SENDFILE_LEN_MIN] {
            let mut output = Output::new();
            output.push_span(Span { file: file.clone(), offset: 100, len });
            assert!(
                matches!(
                    step(here.as_fd(), &output, &mut SendBuffer::new()),
                    Err(SendError::File { .. })
                ),
                "{len}"
            );
        }
    }

    #[test]
    fn closed_peer_is_a_peer_error() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        let mut output: Output<Shared> = Output::new();
        output.push_bytes(b"x");
        assert!(matches!(
            step(here.as_fd(), &output, &mut SendBuffer::new()),
            Err(SendError::Peer)
        ));
    }
}
