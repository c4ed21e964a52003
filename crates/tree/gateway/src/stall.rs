//! Fails a connection if the peer stops reading.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A peer must accept this in each period. A modem of 56 kbit/s takes 20 times as much.
const PROGRESS_LEN: usize = 8 * 1024;

pub(crate) struct StallLimit<S> {
    stream: S,
    period: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    accepted_len: usize,
}

impl<S> StallLimit<S> {
    pub(crate) fn new(stream: S, period: Duration) -> Self {
        Self { stream, period, waiting: None, accepted_len: 0 }
    }

    fn on_write(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(len)) => {
                self.accepted_len += len;
                if self.accepted_len >= PROGRESS_LEN {
                    self.waiting = None;
                }
                Poll::Ready(Ok(len))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let (period, accepted_len) = (self.period, &mut self.accepted_len);
                let timer = self.waiting.get_or_insert_with(|| {
                    *accepted_len = 0;
                    Box::pin(sleep(period))
                });
                ready!(timer.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            // A new request: its response has its own time.
            self.waiting = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallLimit<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.on_write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.on_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::Instant;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn peer_that_does_not_read_is_dropped() {
        let (ours, _theirs) = duplex(1024);
        let began = Instant::now();
        let error = StallLimit::new(ours, PERIOD).write_all(&[0; 4096]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), PERIOD.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_peer_is_served_but_not_a_trickle() {
        let serve = async |bytes_a_second: usize| {
            let (ours, mut theirs) = duplex(1024);
            let reader = tokio::spawn(async move {
                let mut buffer = vec![0; bytes_a_second];
                while theirs.read(&mut buffer).await.is_ok_and(|len| len > 0) {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
            let served = StallLimit::new(ours, PERIOD).write_all(&[0; 100_000]).await;
            reader.abort();
            served.map_err(|error| error.kind())
        };
        assert_eq!(serve(512).await, Ok(()));
        assert_eq!(serve(1).await, Err(io::ErrorKind::TimedOut));
    }
}
