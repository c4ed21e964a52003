//! A handful of futures of which the first to end is wanted.
//!
//! `FuturesUnordered` wakes its own task whenever it has polled all it holds, which with one or two
//! futures is always; and then a reader of many frames is sent round for each of them, and their
//! requests never meet in one call.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Futures that run together. Each is polled whenever any of them wakes: for a handful only.
pub(crate) struct Race<F>(Vec<Pin<Box<F>>>);

impl<F> Default for Race<F> {
    fn default() -> Self {
        Self(Vec::with_capacity(1))
    }
}

impl<F: Future> Race<F> {
    pub(crate) fn push(&mut self, future: F) {
        self.0.push(Box::pin(future));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The outcome of the next to end, which leaves the set. Never ends while the set is empty.
    /// Loses nothing when dropped.
    pub(crate) async fn next(&mut self) -> F::Output {
        poll_fn(|cx| {
            for index in 0..self.0.len() {
                if let Poll::Ready(outcome) = self.0[index].as_mut().poll(cx) {
                    drop(self.0.swap_remove(index));
                    return Poll::Ready(outcome);
                }
            }
            Poll::Pending
        })
        .await
    }
}
