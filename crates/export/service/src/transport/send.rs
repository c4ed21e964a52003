use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{SendAncillaryBuffer, SendFlags};
use vouch_vfs::FileSpan;

use crate::limits::SEND_PIECES_MAX;
use crate::transport::output::{Output, Piece};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    Full,
}

pub(crate) fn send(
    socket: BorrowedFd<'_>,
    output: &mut Output,
    sent: &mut u64,
    mut done: impl FnMut(Vec<u8>),
) -> io::Result<Sent> {
    while !output.is_empty() {
        let n = match step(socket, output) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Full),
            Err(error) => return Err(error),
        };
        *sent += n as u64;
        output.advance(n, &mut done);
    }
    Ok(Sent::All)
}

fn step(socket: BorrowedFd<'_>, output: &Output) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SEND_PIECES_MAX];
    let (mut count, mut span, mut more) = (0, None, false);
    output.pieces(|piece| match piece {
        Piece::Bytes(bytes) if count < SEND_PIECES_MAX => {
            slices[count] = IoSlice::new(bytes);
            count += 1;
            true
        }
        Piece::Span(file, at) if count == 0 => {
            span = Some((file, at));
            false
        }
        _ => {
            more = true;
            false
        }
    });
    if let Some((file, at)) = span {
        return send_span(socket, file, at);
    }
    let flags = SendFlags::NOSIGNAL
        | SendFlags::DONTWAIT
        | if more { SendFlags::MORE } else { SendFlags::empty() };
    if count == 1 {
        return Ok(rustix::io::retry_on_intr(|| rustix::net::send(socket, &slices[0], flags))?);
    }
    Ok(rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket, &slices[..count], &mut SendAncillaryBuffer::default(), flags)
    })?)
}

fn send_span(socket: BorrowedFd<'_>, span: &FileSpan, at: usize) -> io::Result<usize> {
    let mut offset = span.offset + at as u64;
    let left = span.len - at;
    match rustix::io::retry_on_intr(|| {
        rustix::fs::sendfile(socket, span.file.as_fd(), Some(&mut offset), left)
    })? {
        0 => {
            let zeros = &ZEROS[..left.min(ZEROS.len())];
            Ok(rustix::io::retry_on_intr(|| {
                rustix::net::send(socket, zeros, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            })?)
        }
        n => Ok(n),
    }
}

static ZEROS: [u8; 16 * 1024] = [0; 16 * 1024];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::output::Outgoing;
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    fn file(len: usize) -> (Arc<File>, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        (Arc::new(file), bytes)
    }

    #[test]
    fn sends_records_in_order_through_small_socket() {
        let (file, bytes) = file(300_000);
        let mut output = Output::default();
        let mut expected = Vec::new();
        for (offset, len) in [(0, 100), (5, 16_000), (20_000, 200_000), (299_990, 30)] {
            let span = FileSpan { file: file.clone(), offset: offset as u64, len };
            output.push(Outgoing::reply(vec![7; 100], vec![(50, span)], None));
            expected.extend_from_slice(&(0x8000_0000u32 + 96 + len as u32).to_be_bytes());
            expected.extend_from_slice(&[7; 46]);
            expected.extend_from_slice(&bytes[offset..(offset + len).min(bytes.len())]);
            expected.resize(expected.len() + (offset + len).saturating_sub(bytes.len()), 0);
            expected.extend_from_slice(&[7; 50]);
            output.push(Outgoing::bytes(vec![9; 70_000]));
            expected.extend_from_slice(&[9; 70_000]);
        }
        let (here, mut there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        there.set_nonblocking(true).unwrap();
        let (mut arrived, mut sent, mut done) = (Vec::new(), 0, 0);
        while send(here.as_fd(), &mut output, &mut sent, |_| done += 1).unwrap() == Sent::Full {
            let mut read = [0; 5000];
            let n = there.read(&mut read).unwrap();
            arrived.extend_from_slice(&read[..n]);
        }
        drop(here);
        there.set_nonblocking(false).unwrap();
        there.read_to_end(&mut arrived).unwrap();
        assert!(arrived == expected);
        assert_eq!((sent, done), (expected.len() as u64, 8));
    }

    #[test]
    fn closed_peer_is_an_error() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        let mut output = Output::default();
        output.push(Outgoing::bytes(vec![0; 4]));
        assert!(send(here.as_fd(), &mut output, &mut 0, |_| {}).is_err());
    }
}
