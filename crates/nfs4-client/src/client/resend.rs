//! What is sent again: after a lost connection over another one, and after a lost security context
//! under a new one.

use vouch_oncrpc::AuthStat;

use super::{Line, Shared, State};
use crate::Error;
use crate::gss::wants_another;

impl Shared {
    /// Makes a new context, if that is what an error asks for.
    pub(super) async fn renewed_for<T>(&self, outcome: &Result<T, Error>) -> bool {
        match outcome {
            Err(error) if wants_another(error) => self.renew_protection().await,
            _ => false,
        }
    }

    /// Makes a new context; false if that can't be.
    async fn renew_protection(&self) -> bool {
        let Some(renewal) = self.renewal.clone() else { return false };
        match tokio::task::spawn_blocking(move || renewal()).await {
            Ok(Ok(protection)) => {
                let mut state = self.state.lock();
                state.core.set_protection(protection);
                state.used_up = false;
                state.back_is_stale = state.back_follows && state.identity.back_security.is_some();
                state.back_again_at = None;
                true
            }
            _ => false,
        }
    }

    /// Sends again, under a new context, what was denied; fails it if there is none.
    pub(super) async fn go_on(&self) {
        let renewed = self.renew_protection().await;
        loop {
            let freed = self.slot_free.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            {
                let mut guard = self.state.lock();
                let state = &mut *guard;
                for token in std::mem::take(&mut state.denied) {
                    if !renewed {
                        if let Some(pending) = state.pending.remove(&token) {
                            let _ = pending.reply.send(Err(Error::Denied(AuthStat::RPCSEC_GSS_CTX_PROBLEM)));
                        }
                    } else if !state.send_anew(token) {
                        state.denied.push(token);
                    }
                }
                if state.denied.is_empty() {
                    state.renewing = false;
                    return;
                }
            }
            freed.await;
        }
    }

    /// Uses a connection that is new, and sends again what was in flight on it.
    pub(super) fn resume(&self, at: usize) {
        let mut state = self.state.lock();
        state.connections[at].line = Line::Up;
        state.connections[at].out.truncate(0);
        state.resend(at, at);
        self.slot_free.notify_waiters();
    }

    /// Gives a connection up: its calls go on over another, or fail if there is none.
    pub(super) fn give_up(&self, at: usize) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        state.connections[at].line = Line::Gone;
        match state.connections.iter().position(|connection| connection.line != Line::Gone) {
            Some(other) if state.connections[other].line == Line::Up => state.resend(at, other),
            // They are sent when that one is there again.
            Some(other) => state.pending.values_mut().filter(|p| p.connection == at).for_each(|p| p.connection = other),
            None => state.pending.clear(),
        }
        self.slot_free.notify_waiters();
    }
}

impl State {
    /// Sends a call that the server denied once more, as a new one. False if no slot is free.
    fn send_anew(&mut self, token: u64) -> bool {
        let Some(pending) = self.pending.get(&token) else { return true };
        let out = &mut self.connections[pending.connection].out;
        let sent = match self.core.begin(token, pending.kind, out) {
            Ok(None) => return false,
            Ok(Some(mut call)) => {
                call.raw(out, &pending.operations, pending.count);
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

    /// Sends again over `to` what was in flight over `from`.
    fn resend(&mut self, from: usize, to: usize) {
        let out = &mut self.connections[to].out;
        let (core, denied) = (&mut self.core, &self.denied);
        self.pending.retain(|&token, pending| {
            if pending.connection != from {
                return true;
            }
            pending.connection = to;
            // It waits for a new context.
            if denied.contains(&token) {
                return true;
            }
            match core.begin_again(token, out) {
                Ok(Some(mut call)) => {
                    call.raw(out, &pending.operations, pending.count);
                    core.end(call, out).is_ok()
                }
                // Its caller is told that it is lost.
                _ => false,
            }
        });
        self.connections[to].wake.notify_one();
    }
}
