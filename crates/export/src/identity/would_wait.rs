//! Whether a call of this thread stopped because the name service would have to be asked.

use std::cell::Cell;

use vouch_nfs4_server::Unanswered;

thread_local! {
    static WOULD_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// The name service has to be asked, and this thread must not.
pub(super) fn would_wait() -> Unanswered {
    WOULD_WAIT.set(true);
    Unanswered::WouldWait
}

/// Whether a call that this thread has just stopped waits for the name service, and for no disk.
pub(crate) fn take_would_wait() -> bool {
    WOULD_WAIT.take()
}
