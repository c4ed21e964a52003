//! What replies call for beside the calls that they answer.

use std::sync::Arc;
use std::time::Instant;

use super::{Client, Shared, State};

/// What is to be done, by a task of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackgroundTask {
    None,
    /// To make a new context, for the calls that were denied_calls for want of one.
    RenewContext,
    /// To tell the server of the context that callbacks are to come under.
    OfferContext,
}

impl State {
    /// What there is to do now and nobody is at.
    pub(super) fn next_task(&mut self) -> BackgroundTask {
        if self.is_renewing_context {
            return BackgroundTask::None;
        }
        if !self.denied_calls.is_empty() {
            // Replies under a context can't be opened by the next.
            if self.is_context_exhausted && self.pending.keys().any(|token| !self.denied_calls.contains(token)) {
                return BackgroundTask::None;
            }
            self.is_renewing_context = true;
            return BackgroundTask::RenewContext;
        }
        match self.is_callback_context_stale && self.next_offer_at.is_none_or(|at| Instant::now() >= at) {
            true => BackgroundTask::OfferContext,
            false => BackgroundTask::None,
        }
    }
}

impl Shared {
    /// Has somebody do what there is to do.
    pub(super) fn start_task(self: &Arc<Self>, state: &mut State) {
        let task = state.next_task();
        if task != BackgroundTask::None {
            tokio::spawn(Client { shared: self.clone() }.run_task(task));
        }
    }
}

impl Client {
    pub(super) async fn run_task(self, task: BackgroundTask) {
        if task == BackgroundTask::RenewContext {
            self.shared.resend_denied().await;
        }
        self.offer_call_context().await;
    }
}
