//! What callbacks are to be proven by: a context that was named, or that of the calls, whichever
//! that is just then.

use std::time::{Duration, Instant};

use vouch_nfs4::List;
use vouch_nfs4::op::{Args, BackchannelCtlArgs};

use super::{Client, State};
use crate::handshake::is_about_security;
use crate::{BackSecurity, Error, Handshake};

/// After so long a server that was told in vain of a context is told again: it may be busy.
const AGAIN: Duration = Duration::from_secs(1);

impl Client {
    /// Has callbacks come under another context from now on, as after the one before has ended
    /// (BACKCHANNEL_CTL). From then on it is for the caller to name the next.
    pub async fn set_back_security(&self, security: BackSecurity) -> Result<(), Error> {
        self.offer_back_security(&security).await?;
        let mut state = self.shared.state.lock();
        state.back.set_security(Some(security.clone()));
        state.identity.back_security = Some(security);
        (state.back_follows, state.back_is_stale) = (false, false);
        Ok(())
    }

    /// Whether only callbacks are believed that a context proves: the one that was named, or that
    /// of the calls where the server has agreed to call by it.
    pub fn are_callbacks_proven(&self) -> bool {
        self.shared.state.lock().identity.back_security.is_some()
    }

    /// Has callbacks come under the context that calls have now, if it is another one than the
    /// server knows of. Where that fails the server goes without, and is told again when
    /// a connection is made anew, or with the first reply after a while; not if it knows no such
    /// callbacks.
    pub(super) async fn tell_back_security(&self) {
        let security = {
            let mut state = self.shared.state.lock();
            if !std::mem::take(&mut state.back_is_stale) {
                return;
            }
            let Some(security) = state.back_of_calls() else { return };
            // The one before has ended, and the first callback under this one may be here before the answer.
            state.back.set_security(Some(security.clone()));
            state.identity.back_security = Some(security.clone());
            security
        };
        let Err(error) = self.offer_back_security(&security).await else { return };
        if !error.status().is_some_and(is_about_security) {
            let mut state = self.shared.state.lock();
            // Nobody may have named another since, nor the server refused to know any.
            state.back_is_stale = state.back_follows && state.identity.back_security.is_some();
            state.back_again_at = Some(Instant::now() + AGAIN);
        }
    }

    async fn offer_back_security(&self, security: &BackSecurity) -> Result<(), Error> {
        let program = self.shared.state.lock().identity.callback_program;
        let args = BackchannelCtlArgs { program, sec_parms: List(vec![security.offer()]) };
        let reply = self.compound().op(&Args::BackchannelCtl(args)).send().await?;
        reply.results().next_ok().map(drop)
    }
}

impl State {
    /// The context of the calls, under the name that it was offered by before: which offer the
    /// server took in last is nobody's guess then.
    fn back_of_calls(&self) -> Option<BackSecurity> {
        let own = self.core.back_security()?;
        Some(self.identity.back_security.clone().filter(|known| known.from_server == own.from_server).unwrap_or(own))
    }

    /// Begins to introduce the client by the context that its calls have now.
    pub(super) fn begin_handshake(&mut self, minor: u32) -> Handshake {
        if self.back_follows {
            self.identity.back_security = self.back_of_calls();
            self.back_is_stale = false;
        }
        self.back.set_security(self.identity.back_security.clone());
        Handshake::new(minor).protected(self.core.has_integrity()).back_optional(self.back_follows)
    }

    /// Believes callbacks as the server has agreed to prove them.
    pub(super) fn settle_back(&mut self, handshake: &Handshake) {
        if handshake.is_back_refused() {
            self.identity.back_security = None;
            self.back.set_security(None);
        }
    }
}
