//! What callbacks are to be proven by: a context that was named, or that of the calls, whichever
//! that is just then.

use std::time::{Duration, Instant};

use vouch_nfs4::List;
use vouch_nfs4::op::{Args, BackchannelCtlArgs};

use super::{Client, State};
use crate::handshake::is_about_security;
use crate::{CallbackSecurity, Error, Handshake};

/// After so long a server that was told in vain of a context is told again: it may be busy.
const OFFER_RETRY: Duration = Duration::from_secs(1);

impl Client {
    /// Has callbacks come under another context from now on, as after the one before has ended
    /// (BACKCHANNEL_CTL). From then on it is for the caller to name the next.
    pub async fn set_callback_security(&self, security: CallbackSecurity) -> Result<(), Error> {
        self.offer_callback_context(&security).await?;
        let mut state = self.shared.state.lock();
        state.back.set_security(Some(security.clone()));
        state.identity.callback_security = Some(security);
        (state.callbacks_use_call_context, state.is_callback_context_stale) = (false, false);
        Ok(())
    }

    /// Whether only callbacks are believed that a context proves: the one that was named, or that
    /// of the calls where the server has agreed to call by it.
    pub fn are_callbacks_authenticated(&self) -> bool {
        self.shared.state.lock().identity.callback_security.is_some()
    }

    /// Has callbacks come under the context that calls have now, if it is another one than the
    /// server knows of. Where that fails the server goes without, and is told again when
    /// a connection is made anew, or with the first reply after a while; not if it knows no such
    /// callbacks.
    pub(super) async fn offer_call_context(&self) {
        let security = {
            let mut state = self.shared.state.lock();
            if !std::mem::take(&mut state.is_callback_context_stale) {
                return;
            }
            let Some(security) = state.callback_security_of_calls() else { return };
            // The one before has ended, and the first callback under this one may be here before the answer.
            state.back.set_security(Some(security.clone()));
            state.identity.callback_security = Some(security.clone());
            security
        };
        let Err(error) = self.offer_callback_context(&security).await else { return };
        if !error.status().is_some_and(is_about_security) {
            let mut state = self.shared.state.lock();
            // Nobody may have named another since, nor the server refused to know any.
            state.is_callback_context_stale = state.callbacks_use_call_context && state.identity.callback_security.is_some();
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
    /// The context of the calls, under the name that it was offered by before: which offer the
    /// server took in last is nobody's guess then.
    fn callback_security_of_calls(&self) -> Option<CallbackSecurity> {
        let own = self.core.callback_security()?;
        Some(self.identity.callback_security.clone().filter(|known| known.from_server == own.from_server).unwrap_or(own))
    }

    /// Begins to introduce the client by the context that its calls have now.
    pub(super) fn begin_handshake(&mut self, minor: u32) -> Handshake {
        if self.callbacks_use_call_context {
            self.identity.callback_security = self.callback_security_of_calls();
            self.is_callback_context_stale = false;
        }
        self.back.set_security(self.identity.callback_security.clone());
        Handshake::new(minor).with_state_protection(self.core.has_integrity()).callback_security_optional(self.callbacks_use_call_context)
    }

    /// Believes callbacks as the server has agreed to prove them.
    pub(super) fn finish_handshake(&mut self, handshake: &Handshake) {
        if handshake.is_callback_security_refused() {
            self.identity.callback_security = None;
            self.back.set_security(None);
        }
    }
}
