use std::sync::Arc;

use mio::Waker;
use parking_lot::Mutex;

use super::connection::Fetched;

pub(super) struct WakeQueue {
    pub(super) ended: Mutex<Vec<(Ticket, Fetched)>>,
    pub(super) waker: Arc<Waker>,
}

pub(super) type Ticket = (usize, u64);

pub(super) struct Caller<'a> {
    pub(super) wake_queue: &'a Arc<WakeQueue>,
    pub(super) ticket: Ticket,
}

impl Caller<'_> {
    pub(super) fn waker(&self) -> impl FnOnce(bool) + Send + 'static {
        let (wake_queue, ticket) = (Arc::clone(self.wake_queue), self.ticket);
        move |is_complete| {
            wake_queue
                .ended
                .lock()
                .push((ticket, if is_complete { Fetched::Complete } else { Fetched::Failed }));
            if let Err(error) = wake_queue.waker.wake() {
                tracing::error!(%error, "a serving thread can't be woken");
            }
        }
    }
}
