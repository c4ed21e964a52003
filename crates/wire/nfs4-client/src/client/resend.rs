//! Repeats calls after a lost connection or security context.

use std::sync::Arc;
use std::time::Duration;

use vouch_oncrpc::AuthStat;

use super::{LinkState, Shared, State};
use crate::Error;
use crate::compound::EncodedOperations;
use crate::gss::needs_new_context;

const DELAY_PAUSE: Duration = Duration::from_millis(20);

impl Shared {
    pub(super) async fn renew_context_after<T>(&self, outcome: &Result<T, Error>) -> bool {
        match outcome {
            Err(error) if needs_new_context(error) => self.renew_context().await,
            _ => false,
        }
    }

    async fn renew_context(&self) -> bool {
        let Some(renewal) = self.renewal.clone() else { return false };
        match tokio::task::spawn_blocking(move || renewal()).await {
            Ok(Ok(protection)) => {
                let mut state = self.state.lock();
                state.core.set_protection(protection);
                state.is_context_exhausted = false;
                state.is_callback_context_stale =
                    state.callbacks_use_call_context && state.identity.callback_security.is_some();
                state.next_offer_at = None;
                true
            }
            _ => false,
        }
    }

    pub(super) async fn resend_denied(&self) {
        let renewed = self.renew_context().await;
        loop {
            let freed = self.slot_free.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            {
                let mut guard = self.state.lock();
                let state = &mut *guard;
                for token in std::mem::take(&mut state.denied_calls) {
                    if !renewed {
                        if let Some(pending) = state.pending.remove(&token) {
                            let _ = pending
                                .reply
                                .send(Err(Error::Denied(AuthStat::RPCSEC_GSS_CTX_PROBLEM)));
                        }
                    } else if !state.submit_anew(token) {
                        state.denied_calls.push(token);
                    }
                }
                if state.denied_calls.is_empty() {
                    state.is_renewing_context = false;
                    return;
                }
            }
            freed.await;
        }
    }

    pub(super) async fn repeat_delayed(self: &Arc<Self>) {
        tokio::time::sleep(DELAY_PAUSE).await;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.is_waiting_for_delayed = false;
        for token in std::mem::take(&mut state.delayed_calls) {
            state.repeat_call(token);
        }
        self.start_task(state);
    }

    pub(super) fn resume_connection(&self, at: usize) {
        let mut state = self.state.lock();
        state.connections[at].link = LinkState::Up;
        state.connections[at].out.truncate(0);
        state.resend(at, at);
        self.slot_free.notify_waiters();
    }

    pub(super) fn close_connection(&self, at: usize) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.connections[at].link = LinkState::Closed;
        match state.connections.iter().position(|connection| connection.link != LinkState::Closed) {
            Some(other) if state.connections[other].link == LinkState::Up => {
                state.resend(at, other)
            }
            Some(other) => state
                .pending
                .values_mut()
                .filter(|p| p.connection == at)
                .for_each(|p| p.connection = other),
            None => state.pending.clear(),
        }
        self.slot_free.notify_waiters();
    }
}

impl State {
    /// In a free slot. False if none is free.
    pub(super) fn submit_anew(&mut self, token: u64) -> bool {
        let Some(pending) = self.pending.get(&token) else { return true };
        let out = &mut self.connections[pending.connection].out;
        let EncodedOperations { kind, bytes, count, caller } = &pending.operations;
        let sent = match self.core.begin_as(token, *kind, caller.as_deref(), out) {
            Ok(None) => return false,
            Ok(Some(mut call)) => {
                call.raw(out, bytes, *count);
                self.core.end(call, out)
            }
            Err(error) => Err(error),
        };
        self.connections[pending.connection].wake.notify_one();
        if let Err(error) = sent
            && let Some(pending) = self.pending.remove(&token)
        {
            let _ = pending.reply.send(Err(error));
        }
        true
    }

    fn resend(&mut self, from: usize, to: usize) {
        let moved: Vec<u64> = self
            .pending
            .iter_mut()
            .filter(|(_, pending)| pending.connection == from)
            .map(|(&token, pending)| {
                pending.connection = to;
                token
            })
            .collect();
        for token in moved {
            if !self.denied_calls.contains(&token) {
                self.repeat_call(token);
            }
        }
        self.connections[to].wake.notify_one();
    }

    /// With the same slot and sequence number. The calls of a connection that is lost are repeated
    /// once it is back.
    fn repeat_call(&mut self, token: u64) {
        let Some(pending) = self.pending.get(&token) else { return };
        let connection = &mut self.connections[pending.connection];
        if connection.link != LinkState::Up {
            return;
        }
        let out = &mut connection.out;
        let EncodedOperations { bytes, count, caller, .. } = &pending.operations;
        let sent = match self.core.begin_again_as(token, caller.as_deref(), out) {
            Ok(Some(mut call)) => {
                call.raw(out, bytes, *count);
                self.core.end(call, out).is_ok()
            }
            _ => false,
        };
        connection.wake.notify_one();
        if !sent {
            self.pending.remove(&token);
        }
    }
}
