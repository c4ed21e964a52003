//! What replies call for beside the calls that they answer.

use std::sync::Arc;
use std::time::Instant;

use super::{Client, Shared, State};

/// What is to be done, by a task of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    None,
    /// To make a new context, for the calls that were denied for want of one.
    Renew,
    /// To tell the server of the context that callbacks are to come under.
    TellBack,
}

impl State {
    /// What there is to do now and nobody is at.
    pub(super) fn task(&mut self) -> Task {
        if self.renewing {
            return Task::None;
        }
        if !self.denied.is_empty() {
            // Replies under a context can't be opened by the next.
            if self.used_up && self.pending.keys().any(|token| !self.denied.contains(token)) {
                return Task::None;
            }
            self.renewing = true;
            return Task::Renew;
        }
        match self.back_is_stale && self.back_again_at.is_none_or(|at| Instant::now() >= at) {
            true => Task::TellBack,
            false => Task::None,
        }
    }
}

impl Shared {
    /// Has somebody do what there is to do.
    pub(super) fn start_task(self: &Arc<Self>, state: &mut State) {
        let task = state.task();
        if task != Task::None {
            tokio::spawn(Client { shared: self.clone() }.perform(task));
        }
    }
}

impl Client {
    pub(super) async fn perform(self, task: Task) {
        if task == Task::Renew {
            self.shared.go_on().await;
        }
        self.tell_back_security().await;
    }
}
