//! Work that replies trigger.

use std::sync::Arc;
use std::time::Instant;

use super::{Client, Shared, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackgroundTask {
    None,
    RepeatDelayed,
    RenewContext,
    OfferContext,
}

impl State {
    pub(super) fn next_task(&mut self) -> BackgroundTask {
        if !self.delayed_calls.is_empty() && !self.is_waiting_for_delayed {
            self.is_waiting_for_delayed = true;
            return BackgroundTask::RepeatDelayed;
        }
        if self.is_renewing_context {
            return BackgroundTask::None;
        }
        if !self.denied_calls.is_empty() {
            if self.is_context_exhausted
                && self.pending.keys().any(|token| !self.denied_calls.contains(token))
            {
                return BackgroundTask::None;
            }
            self.is_renewing_context = true;
            return BackgroundTask::RenewContext;
        }
        match self.is_callback_context_stale
            && self.next_offer_at.is_none_or(|at| Instant::now() >= at)
        {
            true => BackgroundTask::OfferContext,
            false => BackgroundTask::None,
        }
    }
}

impl Shared {
    pub(super) fn start_task(self: &Arc<Self>, state: &mut State) {
        let task = state.next_task();
        if task != BackgroundTask::None {
            tokio::spawn(Client { shared: self.clone() }.run_task(task));
        }
    }
}

impl Client {
    pub(super) async fn run_task(self, task: BackgroundTask) {
        match task {
            BackgroundTask::RepeatDelayed => return self.shared.repeat_delayed().await,
            BackgroundTask::RenewContext => self.shared.resend_denied().await,
            BackgroundTask::None | BackgroundTask::OfferContext => {}
        }
        self.offer_call_context().await;
    }
}
