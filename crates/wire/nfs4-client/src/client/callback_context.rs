//! The context of callbacks: set by the caller, or that of the calls.

use std::time::{Duration, Instant};

use vouch_nfs4::List;
use vouch_nfs4::op::{Args, BackchannelCtlArgs};

use super::{Client, State};
use crate::handshake::is_security_refusal;
use crate::{CallbackSecurity, Error, Handshake};

const OFFER_RETRY: Duration = Duration::from_secs(1);

impl Client {
    /// By BACKCHANNEL_CTL. Afterwards the caller must replace the context when it ends.
    pub async fn set_callback_security(&self, security: CallbackSecurity) -> Result<(), Error> {
        self.offer_callback_context(&security).await?;
        let mut state = self.shared.state.lock();
        state.back.set_security(Some(security.clone()));
        state.identity.callback_security = Some(security);
        (state.callbacks_use_call_context, state.is_callback_context_stale) = (false, false);
        Ok(())
    }

    /// The client accepts only authenticated callbacks.
    pub fn are_callbacks_authenticated(&self) -> bool {
        self.shared.state.lock().identity.callback_security.is_some()
    }

    /// After a failure the client repeats the offer on reconnect or with a later reply, unless the
    /// server does not support authenticated callbacks.
    pub(super) async fn offer_call_context(&self) {
        let security = {
            let mut state = self.shared.state.lock();
            if !std::mem::take(&mut state.is_callback_context_stale) {
                return;
            }
            let Some(security) = state.callback_security_of_calls() else { return };
            state.back.set_security(Some(security.clone()));
            state.identity.callback_security = Some(security.clone());
            security
        };
        let Err(error) = self.offer_callback_context(&security).await else { return };
        if !error.status().is_some_and(is_security_refusal) {
            let mut state = self.shared.state.lock();
            state.is_callback_context_stale =
                state.callbacks_use_call_context && state.identity.callback_security.is_some();
            state.next_offer_at = Some(Instant::now() + OFFER_RETRY);
        }
    }

    async fn offer_callback_context(&self, security: &CallbackSecurity) -> Result<(), Error> {
        let program = self.shared.state.lock().identity.callback_program;
        let args = BackchannelCtlArgs { program, sec_parms: List(vec![security.offer()]) };
        let reply = self.compound().op(&Args::BackchannelCtl(args)).send().await?;
        reply.results().next_ok().map(drop)
    }
}

impl State {
    /// Keeps its handle: whichever offer the server processed last is valid.
    fn callback_security_of_calls(&self) -> Option<CallbackSecurity> {
        let own = self.core.callback_security()?;
        Some(
            self.identity
                .callback_security
                .clone()
                .filter(|known| known.from_server == own.from_server)
                .unwrap_or(own),
        )
    }

    pub(super) fn begin_handshake(&mut self, minor: u32) -> Handshake {
        if self.callbacks_use_call_context {
            self.identity.callback_security = self.callback_security_of_calls();
            self.is_callback_context_stale = false;
        }
        self.back.set_security(self.identity.callback_security.clone());
        Handshake::new(minor)
            .with_state_protection(self.core.has_integrity())
            .callback_security_optional(self.callbacks_use_call_context)
    }

    pub(super) fn finish_handshake(&mut self, handshake: &Handshake) {
        if handshake.is_callback_security_refused() {
            self.identity.callback_security = None;
            self.back.set_security(None);
        }
    }
}
