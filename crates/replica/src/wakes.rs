//! Wakes connections whose wait for data is over.

use std::sync::Arc;

use mio::Waker;
use parking_lot::Mutex;

use super::connection::Fetched;

pub(super) struct Wakes {
    pub(super) over: Mutex<Vec<(Ticket, Fetched)>>,
    pub(super) waker: Arc<Waker>,
}

/// Place and unique number of a worker's connection.
pub(super) type Ticket = (usize, u64);

pub(super) struct Caller<'a> {
    pub(super) wakes: &'a Arc<Wakes>,
    pub(super) ticket: Ticket,
}

impl Caller<'_> {
    /// Called when the wait is over.
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
