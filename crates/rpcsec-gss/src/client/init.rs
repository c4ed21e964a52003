//! How a client makes a context (RFC 2203, section 5.2): calls of the procedure that does nothing,
//! until mechanism and server are content.

use vouch_oncrpc::{Accepted, AuthStat, Call, Denied, Flavor, OpaqueAuth, Reply, ReplyBody};
use vouch_xdr::{Reader, Writer, Xdr as _};

use super::{ClientContext, EstablishedClient};
use crate::{Credential, GssSeq, InitResult, Procedure, Service};

/// A mechanism, as a client uses it for one context. May sleep: it asks for tickets.
pub trait Initiator {
    /// Why it fails.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Takes the server's token, none at first.
    ///
    /// # Errors
    /// Without a ticket, or if the server isn't who it should be.
    fn step(&mut self, token: Option<&[u8]>) -> Result<InitStep, Self::Error>;
}

/// What a step came to.
pub enum InitStep {
    /// The server is to get this token.
    Continue {
        /// The token.
        token: Vec<u8>,
    },
    /// The context is complete.
    Established {
        /// What protects messages.
        context: EstablishedClient,
        /// For the server, if it is not content yet.
        token: Option<Vec<u8>>,
    },
}

/// Why no context came to be.
#[derive(Debug, thiserror::Error)]
pub enum InitError<E> {
    /// The mechanism.
    #[error("{0}")]
    Mechanism(E),
    /// The server refuses the mechanism's token.
    #[error("the server refuses the ticket (GSS major {major:#x}, minor {minor})")]
    Refused {
        /// GSS-API's status at the server.
        major: u32,
        /// The mechanism's.
        minor: u32,
    },
    /// The server denies the call.
    #[error("the server denies the call (auth_stat {})", .0.0)]
    Denied(AuthStat),
    /// The server's answer is none.
    #[error("the server's answer makes no sense: {0}")]
    Mismatch(&'static str),
    /// The server's answer can't be read.
    #[error("the server's answer can't be read: {0}")]
    Unreadable(#[from] vouch_xdr::Error),
    /// The server could not prove the window that it named.
    #[error("the server's verifier does not hold")]
    Verifier,
}

/// A context that is being made.
pub struct Initiation<I> {
    initiator: I,
    service: Service,
    handle: Vec<u8>,
    token: Vec<u8>,
    established: Option<EstablishedClient>,
}

/// How far it is.
pub enum Initiated<I> {
    /// Another call is to be sent.
    Again(Initiation<I>),
    /// The context can be used.
    Done(ClientContext),
}

impl<I: Initiator> Initiation<I> {
    /// Begins one; the service is what its calls will ask for.
    ///
    /// # Errors
    /// The mechanism's.
    pub fn begin(mut initiator: I, service: Service) -> Result<Self, InitError<I::Error>> {
        let (token, established) = match initiator.step(None).map_err(InitError::Mechanism)? {
            InitStep::Continue { token } => (token, None),
            InitStep::Established { context, token } => (token.ok_or(InitError::Mismatch("a mechanism that says nothing"))?, Some(context)),
        };
        Ok(Self { initiator, service, handle: Vec::new(), token, established })
    }

    /// Appends the next call to `w`, without a record mark.
    pub fn call(&self, xid: u32, program: u32, version: u32, w: &mut Writer) {
        let procedure = if self.handle.is_empty() { Procedure::Init } else { Procedure::ContinueInit };
        let mut body = Writer::new();
        Credential { procedure, seq: GssSeq(0), service: self.service, handle: &self.handle }.encode(&mut body);
        let mut args = Writer::new();
        args.opaque(&self.token);
        let cred = OpaqueAuth { flavor: Flavor::RPCSEC_GSS, body: body.as_bytes() };
        Call { xid, program, version, procedure: 0, cred, verf: OpaqueAuth::NONE, args: args.as_bytes() }.encode(w);
    }

    /// Takes the reply.
    ///
    /// # Errors
    /// If server or mechanism refuse, or the reply proves nothing: then there is no context.
    pub fn reply(mut self, xid: u32, record: &[u8]) -> Result<Initiated<I>, InitError<I::Error>> {
        let reply = Reply::decode(record)?;
        if reply.xid != xid {
            return Err(InitError::Mismatch("the reply is to another call"));
        }
        let (verf, body) = match reply.body {
            ReplyBody::Accepted { verf, outcome: Accepted::Success(body) } => (verf, body),
            ReplyBody::Accepted { .. } => return Err(InitError::Mismatch("the call was not accepted")),
            ReplyBody::Denied(Denied::AuthError(stat)) => return Err(InitError::Denied(stat)),
            ReplyBody::Denied(Denied::RpcMismatch { .. }) => return Err(InitError::Mismatch("another version of RPC")),
        };
        let mut r = Reader::new(body);
        let result = InitResult::decode(&mut r)?;
        r.finish()?;
        let InitResult { major, minor, .. } = result;
        if major != InitResult::COMPLETE && major != InitResult::CONTINUE_NEEDED {
            return Err(InitError::Refused { major, minor });
        }
        if result.handle.is_empty() {
            return Err(InitError::Mismatch("a context without a name"));
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
                // RFC 2203, section 5.2.3.1.1: the window is believed only if its verifier holds.
                if verf.flavor != Flavor::RPCSEC_GSS || established.keys.verify_mic(&[&result.window.to_be_bytes()], verf.body).is_err() {
                    return Err(InitError::Verifier);
                }
                Ok(Initiated::Done(ClientContext::new(established, self.handle, self.service, result.window)))
            }
            (InitResult::CONTINUE_NEEDED, established, Some(token)) => Ok(Initiated::Again(Self { token, established, ..self })),
            _ => Err(InitError::Mismatch("client and server disagree whether the context is complete")),
        }
    }
}
