//! Server side: creation of contexts (RFC 2203 §5.2).

use std::sync::Arc;

use vouch_oncrpc::{Accepted, AuthStat, Denied, Flavor, OpaqueAuth, Reply, ReplyBody};
use vouch_xdr::{Writer, Xdr as _};

use crate::window::WINDOW_LEN;
use crate::{ContextHandle, Contexts, EstablishedContext, InitResult, ServerContext};

/// A mechanism. May block: it reads keys and stores authenticators.
pub trait Acceptor: Send + Sync {
    /// Between two exchanges of a context.
    type Partial: Send;

    /// Takes a token of the client, and the state after the previous one.
    fn accept(&self, partial: Option<Self::Partial>, token: &[u8]) -> Accept<Self::Partial>;
}

/// The mechanism's answer to a token.
pub enum Accept<P> {
    /// The context is complete.
    Established {
        /// What both sides have agreed.
        context: EstablishedContext,
        /// Authenticates the server to the client.
        token: Vec<u8>,
    },
    /// The client must send another token.
    Continue {
        /// For the next exchange.
        partial: P,
        /// For the client.
        token: Vec<u8>,
    },
    /// The client is refused.
    Failed {
        /// GSS-API status.
        major: u32,
        /// Status of the mechanism.
        minor: u32,
        /// For the client.
        token: Vec<u8>,
        /// For the administrator: client, reason, remedy.
        reason: String,
        /// Client principal, if known; unproven.
        principal: String,
        /// Enctype of the service's key, as the ticket says in clear.
        enctype: Option<u32>,
    },
}

/// A call that creates a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitCall {
    /// Transaction id of the call.
    pub xid: u32,
    /// Empty in the first call.
    pub handle: Vec<u8>,
    /// From the client's mechanism.
    pub token: Vec<u8>,
}

impl InitCall {
    /// `None` for a first call. Fails with the status to answer if the context is unknown (RFC 2203
    /// §5.3.3.3).
    pub fn partial<P>(
        &self,
        contexts: &mut Contexts<P>,
        now_ms: u64,
    ) -> Result<Option<P>, AuthStat> {
        if self.handle.is_empty() {
            return Ok(None);
        }
        let found = contexts.take_partial(&self.handle, now_ms);
        found.map(|(_, partial)| Some(partial)).ok_or(AuthStat::RPCSEC_GSS_CRED_PROBLEM)
    }

    /// Appends the reply to `w`, without a record mark. Computes a MIC: hold no lock.
    pub fn reply(&self, outcome: InitOutcome, w: &mut Writer) {
        let named = |handle: ContextHandle, major, minor, token| {
            let handle = handle.0.to_vec();
            InitResult { handle, major, minor, window: WINDOW_LEN, token }
        };
        let result = match outcome {
            InitOutcome::Complete { context, token } => {
                // RFC 2203 §5.2.3.1: the verifier of a complete context covers the window.
                let mic = context.keys().mic(context.next_token(), &[&WINDOW_LEN.to_be_bytes()]);
                let verf = OpaqueAuth { flavor: Flavor::RPCSEC_GSS, body: mic.as_bytes() };
                let body = named(context.handle(), InitResult::COMPLETE, 0, token).to_xdr();
                return Reply {
                    xid: self.xid,
                    body: ReplyBody::Accepted { verf, outcome: Accepted::Success(&body) },
                }
                .encode(w);
            }
            InitOutcome::Partial { handle, token } => {
                named(handle, InitResult::CONTINUE_NEEDED, 0, token)
            }
            // RFC 2203 §5.2.3.2: no handle, no window.
            InitOutcome::Failed { major, minor, token } => {
                InitResult { handle: Vec::new(), major, minor, window: 0, token }
            }
        };
        Reply::accepted(self.xid, Accepted::Success(&result.to_xdr())).encode(w);
    }

    /// Writes a denial with this status.
    pub fn refuse(&self, stat: AuthStat, w: &mut Writer) {
        Reply::denied(self.xid, Denied::AuthError(stat)).encode(w);
    }
}

/// A stored step of context creation, for the reply.
pub enum InitOutcome {
    /// The context is complete.
    Complete {
        /// Shared by all connections.
        context: Arc<ServerContext>,
        /// For the client.
        token: Vec<u8>,
    },
    /// The client must send another token.
    Partial {
        /// For the client's next call.
        handle: ContextHandle,
        /// For the client.
        token: Vec<u8>,
    },
    /// The client is refused.
    Failed {
        /// GSS-API status.
        major: u32,
        /// Mechanism status.
        minor: u32,
        /// For the client.
        token: Vec<u8>,
    },
}

impl<P> Contexts<P> {
    /// `handle` is random and new.
    pub fn store(&mut self, accept: Accept<P>, handle: ContextHandle, now_ms: u64) -> InitOutcome {
        match accept {
            Accept::Established { context, token } => {
                InitOutcome::Complete { context: self.insert(handle, context, now_ms), token }
            }
            Accept::Continue { partial, token } => {
                self.store_partial(handle, partial, now_ms);
                InitOutcome::Partial { handle, token }
            }
            Accept::Failed { major, minor, token, .. } => {
                InitOutcome::Failed { major, minor, token }
            }
        }
    }
}
