//! The call stopped because of a name service look-up.

use std::cell::Cell;

use vouch_nfs4_server::Unanswered;

thread_local! {
    static WOULD_WAIT: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn would_wait() -> Unanswered {
    WOULD_WAIT.set(true);
    Unanswered::WouldWait
}

pub(crate) fn take_would_wait() -> bool {
    WOULD_WAIT.take()
}
