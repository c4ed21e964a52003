//! How a context comes to be, on the server's side (RFC 2203, section 5.2). The mechanism is behind
//! [`Acceptor`].

use std::sync::Arc;

use vouch_oncrpc::{Accepted, AuthStat, Denied, Flavor, OpaqueAuth, Reply, ReplyBody};
use vouch_xdr::{Writer, Xdr as _};

use crate::{ContextHandle, Contexts, EstablishedContext, InitResult, ServerContext, WINDOW_LEN};

/// A mechanism that contexts are made by. May sleep: it reads keys and remembers authenticators.
pub trait Acceptor: Send + Sync {
    /// What it keeps between two exchanges of one context.
    type Partial: Send;

    /// Takes a client's token.
    fn accept(&self, partial: Option<Self::Partial>, token: &[u8]) -> Accept<Self::Partial>;
}

/// What a client's token came to.
pub enum Accept<P> {
    /// The context is complete.
    Established {
        /// The context.
        context: EstablishedContext,
        /// For the client, which proves us to it.
        token: Vec<u8>,
    },
    /// The client is to send another.
    Continue {
        /// To be handed in with it.
        partial: P,
        /// For the client.
        token: Vec<u8>,
    },
    /// The client is not believed.
    Failed {
        /// GSS-API's status.
        major: u32,
        /// The mechanism's.
        minor: u32,
        /// For the client, if the mechanism has something to say to it.
        token: Vec<u8>,
        /// For the administrator: who, why, and what cures it.
        reason: String,
        /// Who, where the mechanism knows: what it could not read it can't believe.
        principal: String,
        /// Encryption type of the service's key that the ticket is for, as the ticket says in
        /// clear.
        enctype: Option<u32>,
    },
}

/// A call that makes a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitCall {
    /// Transaction of the call.
    pub xid: u32,
    /// The context that it goes on with; empty if it begins one.
    pub handle: Vec<u8>,
    /// The client's token.
    pub token: Vec<u8>,
}

impl InitCall {
    /// What was kept of the exchanges before: nothing for a first call.
    ///
    /// # Errors
    /// With what is answered if the context that it goes on with isn't known (RFC 2203, section
    /// 5.3.3.3).
    pub fn partial<P>(&self, contexts: &mut Contexts<P>, now_ms: u64) -> Result<Option<P>, AuthStat> {
        if self.handle.is_empty() {
            return Ok(None);
        }
        let found = contexts.take_partial(&self.handle, now_ms);
        found.map(|(_, partial)| Some(partial)).ok_or(AuthStat::RPCSEC_GSS_CRED_PROBLEM)
    }

    /// Appends the reply to `w`, without a record mark. Makes a proof: no lock should be held.
    pub fn reply(&self, kept: Kept, w: &mut Writer) {
        let named = |handle: ContextHandle, major, minor, token| {
            let handle = handle.0.to_vec();
            InitResult { handle, major, minor, window: WINDOW_LEN, token }
        };
        let result = match kept {
            Kept::Whole { context, token } => {
                // RFC 2203, section 5.2.3.1: the verifier of a complete context is over the window.
                let mic = context.keys().mic(context.next_token(), &[&WINDOW_LEN.to_be_bytes()]);
                let verf = OpaqueAuth { flavor: Flavor::RPCSEC_GSS, body: mic.as_bytes() };
                let body = named(context.handle(), InitResult::COMPLETE, 0, token).to_xdr();
                return Reply { xid: self.xid, body: ReplyBody::Accepted { verf, outcome: Accepted::Success(&body) } }.encode(w);
            }
            Kept::Partial { handle, token } => named(handle, InitResult::CONTINUE_NEEDED, 0, token),
            // RFC 2203, section 5.2.3.2: no handle, no window.
            Kept::Failed { major, minor, token } => InitResult { handle: Vec::new(), major, minor, window: 0, token },
        };
        Reply::accepted(self.xid, Accepted::Success(&result.to_xdr())).encode(w);
    }

    /// Appends the reply that refuses the call.
    pub fn refuse(&self, stat: AuthStat, w: &mut Writer) {
        Reply::denied(self.xid, Denied::AuthError(stat)).encode(w);
    }
}

/// What the mechanism said, taken in.
pub enum Kept {
    /// A context that calls may use.
    Whole {
        /// The context.
        context: Arc<ServerContext>,
        /// For the client.
        token: Vec<u8>,
    },
    /// One that is in the making.
    Partial {
        /// Its name until then.
        handle: ContextHandle,
        /// For the client.
        token: Vec<u8>,
    },
    /// None.
    Failed {
        /// GSS-API's status.
        major: u32,
        /// The mechanism's.
        minor: u32,
        /// For the client.
        token: Vec<u8>,
    },
}

impl<P> Contexts<P> {
    /// Takes in what the mechanism said, under `handle`, which is random and new.
    pub fn keep(&mut self, accept: Accept<P>, handle: ContextHandle, now_ms: u64) -> Kept {
        match accept {
            Accept::Established { context, token } => Kept::Whole { context: self.insert(handle, context, now_ms), token },
            Accept::Continue { partial, token } => {
                self.keep_partial(handle, partial, now_ms);
                Kept::Partial { handle, token }
            }
            Accept::Failed { major, minor, token, .. } => Kept::Failed { major, minor, token },
        }
    }
}
