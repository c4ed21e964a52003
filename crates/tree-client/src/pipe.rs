//! The replica protocol within the process, over a pipe in memory: local data is verified like a
//! remote replica's.
//!
//! Replies are shared buffers. The reader copies them once, into their final place.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, SimplexStream, WriteHalf};
use tokio::sync::mpsc;
use vouch_oncrpc::{Accepted, Call, RecordReader, Reply, begin_record, end_record};
use vouch_tree::protocol::{ARGS_LEN_MAX, FOUND, NOT_FOUND, PROGRAM, Procedure, VERSION};
use vouch_xdr::Writer;

use crate::connector::Stream;

/// XDR in pieces; `None` becomes an RPC error.
pub(crate) type Results = Option<Vec<Bytes>>;

/// Does not copy the frames.
pub(crate) fn data_results(frames: impl ExactSizeIterator<Item = Option<Bytes>>) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(3 * frames.len() + 1);
    let mut words = Writer::new();
    words.count(frames.len());
    for frame in frames {
        let Some(frame) = frame else {
            words.u32(NOT_FOUND);
            continue;
        };
        words.u32(FOUND);
        words.count(frame.len());
        pieces.push(std::mem::take(&mut words).into_bytes().into());
        let padding = frame.len().next_multiple_of(4) - frame.len();
        pieces.push(frame);
        if padding > 0 {
            pieces.push(Bytes::from_static(&[0; 3][..padding]));
        }
    }
    pieces.push(words.into_bytes().into());
    pieces
}

/// Answers several calls at a time.
pub(crate) fn open<A>(answer: A) -> io::Result<Box<dyn Stream>>
where
    A: Fn(Procedure, Vec<u8>) -> BoxFuture<'static, Results> + Send + 'static,
{
    let (input, calls) = tokio::io::simplex(PIPE_LEN);
    let (output, replies) = mpsc::channel(PIECES_MAX);
    tokio::spawn(serve(input, output, answer));
    Ok(Box::new(Pipe { calls, replies, piece: Bytes::new() }))
}

/// The client's end.
struct Pipe {
    calls: WriteHalf<SimplexStream>,
    replies: mpsc::Receiver<Bytes>,
    /// Unread bytes of the current piece.
    piece: Bytes,
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.piece.is_empty() {
            match ready!(self.replies.poll_recv(context)) {
                Some(piece) => self.piece = piece,
                None => return Poll::Ready(Ok(())),
            }
        }
        let len = buffer.remaining().min(self.piece.len());
        buffer.put_slice(&self.piece.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.calls).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.calls).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.calls).poll_shutdown(context)
    }
}

/// Ends when the client closes or sends an invalid record.
async fn serve(
    mut input: impl AsyncRead + Unpin,
    output: mpsc::Sender<Bytes>,
    answer: impl Fn(Procedure, Vec<u8>) -> BoxFuture<'static, Results> + Send,
) {
    let (mut records, mut buffer) = (RecordReader::new(RECORD_LEN_MAX), vec![0; BUFFER_LEN]);
    let mut replies = FuturesOrdered::new();
    loop {
        tokio::select! {
            () = output.closed() => return,
            read = input.read(&mut buffer), if replies.len() < CALLS_MAX => {
                let Ok(len @ 1..) = read else { return };
                let mut bytes = &buffer[..len];
                loop {
                    let record = match records.next(&mut bytes) {
                        Ok(Some(record)) => record,
                        Ok(None) => break,
                        Err(_) => return,
                    };
                    let Some((xid, procedure, args)) = decode(&record) else { return };
                    let results = tokio::spawn(answer(procedure, args));
                    replies.push_back(async move { encode(xid, results.await.ok().flatten()) });
                }
            }
            Some(reply) = replies.next(), if !replies.is_empty() => {
                for piece in reply {
                    if output.send(piece).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

fn decode(record: &[u8]) -> Option<(u32, Procedure, Vec<u8>)> {
    let call = Call::decode(record).ok().filter(|call| call.program == PROGRAM && call.version == VERSION)?;
    Some((call.xid, Procedure::from_number(call.procedure)?, call.args.to_vec()))
}

fn encode(xid: u32, results: Results) -> Vec<Bytes> {
    let mut w = Writer::new();
    let start = begin_record(&mut w);
    Reply::accepted(xid, results.as_ref().map_or(Accepted::SystemErr, |_| Accepted::Success(&[]))).encode(&mut w);
    let mut head = w.into_bytes();
    let results = results.unwrap_or_default();
    end_record(&mut head, start, results.iter().map(Bytes::len).sum());
    std::iter::once(head.into()).chain(results).collect()
}

/// Longest call: arguments and RPC header.
const RECORD_LEN_MAX: usize = ARGS_LEN_MAX + 1024;
const BUFFER_LEN: usize = 64 << 10;
const PIPE_LEN: usize = 128 << 10;
/// Pieces that wait for the reader. A piece has 128 KiB at most.
const PIECES_MAX: usize = 8;
/// Further calls wait.
const CALLS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use vouch_tree::protocol::GetDataResult;

    #[test]
    fn pieces_are_the_encoding_of_the_results() {
        for lens in [&[][..], &[0], &[1, 2], &[3, 4, 131_072, 5]] {
            let mut frames: Vec<Option<Bytes>> = lens.iter().map(|&len| Some(Bytes::from(vec![7; len]))).collect();
            frames.push(None);
            let mut w = Writer::new();
            GetDataResult { frames: frames.iter().map(Option::as_deref).collect() }.encode(&mut w);
            assert_eq!(data_results(frames.into_iter()).concat(), w.into_bytes(), "{lens:?}");
        }
    }
}
