//! Wakes connections whose wait for data from elsewhere is over.

use std::sync::Arc;

use mio::Waker;
use parking_lot::Mutex;

use super::connection::Fetched;

/// Waits of connections that are over.
pub(super) struct Wakes {
    pub(super) over: Mutex<Vec<(Ticket, Fetched)>>,
    pub(super) waker: Arc<Waker>,
}

/// A connection of a worker: its place, and a number that no other connection has.
pub(super) type Ticket = (usize, u64);

/// A connection that a wait for data can end for.
pub(super) struct Caller<'a> {
    pub(super) wakes: &'a Arc<Wakes>,
    pub(super) ticket: Ticket,
}

impl Caller<'_> {
    /// What to call when the wait is over.
    pub(super) fn waker(&self) -> impl FnOnce(bool) + Send + 'static {
        let (wakes, ticket) = (Arc::clone(self.wakes), self.ticket);
        move |is_complete| {
            wakes.over.lock().push((ticket, if is_complete { Fetched::Complete } else { Fetched::Failed }));
            if let Err(error) = wakes.waker.wake() {
                tracing::error!(%error, "a serving thread can't be woken");
            }
        }
    }
}
