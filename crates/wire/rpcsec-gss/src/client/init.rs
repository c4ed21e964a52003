//! Client side: creation of a context (RFC 2203 §5.2) by calls of the NULL procedure.

use vouch_oncrpc::{Accepted, AuthStat, Call, Denied, Flavor, OpaqueAuth, Reply, ReplyBody};
use vouch_xdr::{Reader, Writer, Xdr as _};

use super::{ClientContext, EstablishedClient};
use crate::{Credential, GssSeq, InitResult, Procedure, Service};

/// A mechanism for one client context. May block: it asks for tickets.
pub trait Initiator {
    /// Why the mechanism fails.
    type Error: std::error::Error + Send + Sync + 'static;

    /// `None` in the first step. Fails without a ticket or if the server's identity is wrong.
    fn step(&mut self, token: Option<&[u8]>) -> Result<InitStep, Self::Error>;
}

/// The mechanism's next step.
pub enum InitStep {
    /// A token for the server.
    Continue {
        /// From the mechanism.
        token: Vec<u8>,
    },
    /// The context is complete.
    Established {
        /// What both sides have agreed.
        context: EstablishedClient,
        /// For the server, if it needs one.
        token: Option<Vec<u8>>,
    },
}

/// Why no context is created.
#[derive(Debug, thiserror::Error)]
pub enum InitError<E> {
    /// Of the client's mechanism.
    #[error("{0}")]
    Mechanism(E),
    /// By the server's mechanism.
    #[error("the server refused the ticket (GSS major {major:#x}, minor {minor})")]
    Refused {
        /// GSS-API status.
        major: u32,
        /// Status of the mechanism.
        minor: u32,
    },
    /// By the RPC layer of the server.
    #[error("the server denied the call (auth_stat {})", .0.0)]
    Denied(AuthStat),
    /// The server breaks the protocol.
    #[error("the server's answer is inconsistent: {0}")]
    Mismatch(&'static str),
    /// The answer has an invalid encoding.
    #[error("the server's answer can't be decoded: {0}")]
    Unreadable(#[from] vouch_xdr::Error),
    /// The answer is not from the holder of the key.
    #[error("the verifier of the server's window is invalid")]
    Verifier,
}

/// The creation of a context, between two calls.
pub struct Initiation<I> {
    initiator: I,
    service: Service,
    handle: Vec<u8>,
    token: Vec<u8>,
    established: Option<EstablishedClient>,
}

/// The state after an answer.
pub enum Initiated<I> {
    /// Another call must be sent.
    Again(Initiation<I>),
    /// The context can be used.
    Done(ClientContext),
}

impl<I: Initiator> Initiation<I> {
    /// `service`: protection of the context's later calls.
    pub fn begin(mut initiator: I, service: Service) -> Result<Self, InitError<I::Error>> {
        let (token, established) = match initiator.step(None).map_err(InitError::Mechanism)? {
            InitStep::Continue { token } => (token, None),
            InitStep::Established { context, token } => (
                token.ok_or(InitError::Mismatch("the mechanism produced no token"))?,
                Some(context),
            ),
        };
        Ok(Self { initiator, service, handle: Vec::new(), token, established })
    }

    /// Appends the next call to `w`, without a record mark.
    pub fn call(&self, xid: u32, program: u32, version: u32, w: &mut Writer) {
        let procedure =
            if self.handle.is_empty() { Procedure::Init } else { Procedure::ContinueInit };
        let mut body = Writer::new();
        Credential { procedure, seq: GssSeq(0), service: self.service, handle: &self.handle }
            .encode(&mut body);
        let mut args = Writer::new();
        args.opaque(&self.token);
        let cred = OpaqueAuth { flavor: Flavor::RPCSEC_GSS, body: body.as_bytes() };
        Call { cred, ..Call::new(xid, (program, version), 0, args.as_bytes()) }.encode(w);
    }

    /// Fails if the server or the mechanism refuses, or if the reply's verifier is invalid.
    pub fn reply(mut self, xid: u32, record: &[u8]) -> Result<Initiated<I>, InitError<I::Error>> {
        let reply = Reply::decode(record)?;
        if reply.xid != xid {
            return Err(InitError::Mismatch("the reply is to another call"));
        }
        let (verf, body) = match reply.body {
            ReplyBody::Accepted { verf, outcome: Accepted::Success(body) } => (verf, body),
            ReplyBody::Accepted { .. } => {
                return Err(InitError::Mismatch("the call was not accepted"));
            }
            ReplyBody::Denied(Denied::AuthError(stat)) => return Err(InitError::Denied(stat)),
            ReplyBody::Denied(Denied::RpcMismatch { .. }) => {
                return Err(InitError::Mismatch("the server has another version of RPC"));
            }
        };
        let mut r = Reader::new(body);
        let result = InitResult::decode(&mut r)?;
        r.finish()?;
        let InitResult { major, minor, .. } = result;
        if major != InitResult::COMPLETE && major != InitResult::CONTINUE_NEEDED {
            return Err(InitError::Refused { major, minor });
        }
        if result.handle.is_empty() {
            return Err(InitError::Mismatch("the context has no handle"));
        }
        self.handle = result.handle;
        let mut next = None;
        if self.established.is_none() {
            match self.initiator.step(Some(&result.token)).map_err(InitError::Mechanism)? {
                InitStep::Continue { token } => next = Some(token),
                InitStep::Established { context, token } => {
                    self.established = Some(context);
                    next = token;
                }
            }
        }
        match (major, self.established.take(), next) {
            (InitResult::COMPLETE, Some(established), None) => {
                // RFC 2203 §5.2.3.1.1: the window is valid only with its verifier.
                if verf.flavor != Flavor::RPCSEC_GSS
                    || established
                        .keys
                        .verify_mic(&[&result.window.to_be_bytes()], verf.body)
                        .is_err()
                {
                    return Err(InitError::Verifier);
                }
                Ok(Initiated::Done(ClientContext::new(
                    established,
                    self.handle,
                    self.service,
                    result.window,
                )))
            }
            (InitResult::CONTINUE_NEEDED, established, Some(token)) => {
                Ok(Initiated::Again(Self { token, established, ..self }))
            }
            _ => Err(InitError::Mismatch(
                "client and server disagree whether the context is complete",
            )),
        }
    }
}
