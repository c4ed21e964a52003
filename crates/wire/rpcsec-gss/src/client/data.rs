//! Client side: calls in a context, and their replies (RFC 2203 §5.3).

use std::sync::Arc;

use vouch_krb5_seal::ContextKeys;
use vouch_oncrpc::{Flavor, OpaqueAuth};
use vouch_xdr::{Writer, pad_len};

use super::CallWrap;
use crate::window::WINDOW_LEN;
use crate::wire::{LENGTH_LEN, integrity_body, privacy_body};
use crate::{
    ContextHandle, Credential, EstablishedContext, GssSeq, Procedure, ServerContext, Service,
};

/// What a client's mechanism has agreed with a server.
#[derive(Clone)]
pub struct EstablishedClient {
    /// Shared with the context that is made of it.
    pub keys: Arc<ContextKeys>,
    /// Seconds from now until the ticket's end.
    pub lifetime_s: u64,
    /// Sequence number of our first token.
    pub token_seq: u64,
}

/// A reply that is not genuine, or a context that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The header does not belong to the call.
    #[error("the reply's verifier is invalid")]
    Verifier,
    /// The body is altered.
    #[error("the reply's body is altered or belongs to another call")]
    Body,
    /// A new context is needed.
    #[error("the security context has no sequence numbers left")]
    UsedUp,
}

/// A context on a client.
pub struct ClientContext {
    keys: Arc<ContextKeys>,
    handle: Vec<u8>,
    service: Service,
    window: u32,
    lifetime_s: u64,
    next_seq: u32,
    next_token: u64,
}

impl ClientContext {
    pub(crate) fn new(
        established: EstablishedClient,
        handle: Vec<u8>,
        service: Service,
        window: u32,
    ) -> Self {
        let EstablishedClient { keys, lifetime_s, token_seq } = established;
        // RFC 2203 §5.3.1: the first number is arbitrary.
        Self { keys, handle, service, window, lifetime_s, next_seq: 1, next_token: token_seq }
    }

    pub(crate) fn of_server(
        keys: Arc<ContextKeys>,
        token: u64,
        handle: Vec<u8>,
        service: Service,
        seq: GssSeq,
    ) -> Self {
        // Verifier and body of a call use distinct token numbers; replies use another range.
        let next_token = token.wrapping_shl(1).wrapping_add(BACK_TOKENS);
        Self {
            keys,
            handle,
            service,
            window: WINDOW_LEN,
            lifetime_s: 0,
            next_seq: seq.0,
            next_token,
        }
    }

    /// The client's end of callbacks in this context (RFC 8881 §2.10.8.3). The client sends
    /// `handle` to the server.
    pub fn back_channel(&self, handle: ContextHandle) -> Arc<ServerContext> {
        let established = EstablishedContext {
            keys: self.keys.clone(),
            principal: SERVER.into(),
            service: SERVER.into(),
            lifetime_s: self.lifetime_s,
            token_seq: self.next_token.wrapping_add(BACK_TOKENS),
        };
        Arc::new(ServerContext::new(handle, established, 0))
    }

    /// The server's window: maximum distance to the newest call.
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// Seconds from its creation until the ticket's end.
    pub const fn lifetime_s(&self) -> u64 {
        self.lifetime_s
    }

    /// The type that all messages use.
    pub fn enctype(&self) -> vouch_krb5_seal::Enctype {
        self.keys.enctype()
    }

    /// Protection of the calls and replies.
    pub const fn service(&self) -> Service {
        self.service
    }

    /// The handle that the server has given.
    pub fn handle(&self) -> &[u8] {
        &self.handle
    }

    /// Appends the credential, and room for the verifier and before the arguments, to a call whose
    /// header begins at `header_start` of `w`. Protect the call later by [`Self::end`] or
    /// [`Self::wrap_many`]. [`OpenError::UsedUp`] after the last number.
    pub fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<GssSeq, OpenError> {
        let seq = self.next_seq()?;
        self.write_header(Procedure::Data, seq, w, header_start);
        let len = w.len() + self.head_len();
        w.bytes_mut().resize(len, 0);
        Ok(seq)
    }

    /// Appends credential and verifier of the call that ends the context (RFC 2203 §5.4).
    /// [`OpenError::UsedUp`] after the last number.
    pub fn destroy(&mut self, w: &mut Writer, header_start: usize) -> Result<GssSeq, OpenError> {
        let seq = self.next_seq()?;
        self.write_header(Procedure::Destroy, seq, w, header_start);
        self.sign_header(&mut w.bytes_mut()[header_start..]);
        Ok(seq)
    }

    fn sign_header(&mut self, call: &mut [u8]) {
        let token = self.tokens(1);
        let (header, verifier) = call.split_at_mut(self.header_len());
        verifier[VERIFIER_HEAD_LEN..].copy_from_slice(&self.keys.mic(token, &[header]));
    }

    fn next_seq(&mut self) -> Result<GssSeq, OpenError> {
        let seq = GssSeq(self.next_seq);
        if seq >= GssSeq::MAX {
            return Err(OpenError::UsedUp);
        }
        self.next_seq += 1;
        Ok(seq)
    }

    fn write_header(
        &mut self,
        procedure: Procedure,
        seq: GssSeq,
        w: &mut Writer,
        header_start: usize,
    ) {
        let credential = Credential { procedure, seq, service: self.service, handle: &self.handle };
        w.u32(Flavor::RPCSEC_GSS.0);
        w.count(credential.len());
        credential.encode(w);
        debug_assert_eq!(w.len(), header_start + self.header_len());
        OpaqueAuth { flavor: Flavor::RPCSEC_GSS, body: &NO_VERIFIER[..self.keys.mic_len()] }
            .encode(w);
    }

    pub(super) fn header_len(&self) -> usize {
        CREDENTIAL_AT + 20 + self.handle.len() + pad_len(self.handle.len())
    }

    pub(super) fn body_at(&self) -> usize {
        self.header_len() + VERIFIER_HEAD_LEN + self.keys.mic_len()
    }

    pub(super) fn head_len(&self) -> usize {
        match self.service {
            Service::None => 0,
            Service::Integrity => LENGTH_LEN + SEQ_LEN,
            Service::Privacy => LENGTH_LEN + self.keys.header_len() + SEQ_LEN,
        }
    }

    /// The arguments are the bytes of `w` from `body_start`: adds their sequence number and the
    /// room after them.
    pub fn lay_out(&self, seq: GssSeq, w: &mut Writer, body_start: usize) {
        let body_at = body_start - self.head_len();
        match self.service {
            Service::None => {}
            Service::Integrity => {
                w.set_u32(body_at + LENGTH_LEN, seq.0);
                w.end_opaque(body_at + LENGTH_LEN);
                w.opaque(&NO_VERIFIER[..self.keys.mic_len()]);
            }
            Service::Privacy => {
                w.set_u32(body_start - SEQ_LEN, seq.0);
                let end = w.len() + self.keys.trailer_len();
                w.bytes_mut().resize(end, 0);
                w.end_opaque(body_at + LENGTH_LEN);
            }
        }
    }

    /// Protects a call with its header at `header_start` of `w` and its arguments at `body_start`.
    /// `confounder` is random. Do not send `w` after [`OpenError::UsedUp`].
    pub fn end(
        &mut self,
        seq: GssSeq,
        w: &mut Writer,
        header_start: usize,
        body_start: usize,
        confounder: [u8; 16],
    ) -> Result<(), OpenError> {
        self.lay_out(seq, w, body_start);
        let mut wraps = [CallWrap { bytes: &mut w.bytes_mut()[header_start..] }];
        match self.wrap_many(&mut wraps, &mut |bytes| {
            bytes.copy_from_slice(&confounder);
            true
        }) {
            true => Ok(()),
            false => Err(OpenError::UsedUp),
        }
    }

    /// Checks the verifier of the reply to the call `seq`.
    pub fn verify(&self, seq: GssSeq, verifier: OpaqueAuth<'_>) -> Result<(), OpenError> {
        if verifier.flavor != Flavor::RPCSEC_GSS {
            return Err(OpenError::Verifier);
        }
        self.keys
            .verify_mic(&[&seq.0.to_be_bytes()], verifier.body)
            .map(drop)
            .map_err(|_| OpenError::Verifier)
    }

    /// `scratch` holds results that can't be opened in place.
    pub fn open<'a>(
        &self,
        seq: GssSeq,
        body: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], OpenError> {
        let results = match self.service {
            Service::None => return Ok(body),
            Service::Integrity => {
                let (data, checksum) = integrity_body(body).map_err(|_| OpenError::Body)?;
                let data = &body[data];
                self.keys.verify_mic(&[data], &body[checksum]).map_err(|_| OpenError::Body)?;
                data
            }
            Service::Privacy => {
                let sealed = privacy_body(body).map_err(|_| OpenError::Body)?;
                scratch.clear();
                scratch.extend_from_slice(&body[sealed]);
                let plain = self.keys.open(scratch).map_err(|_| OpenError::Body)?;
                &scratch[plain]
            }
        };
        // RFC 2203 §5.3.2.2: the number inside is the call's.
        match results.split_first_chunk() {
            Some((number, results)) if *number == seq.0.to_be_bytes() => Ok(results),
            _ => Err(OpenError::Body),
        }
    }

    pub(super) fn shared_keys(&self) -> Arc<ContextKeys> {
        self.keys.clone()
    }

    pub(super) fn keys(&self) -> &ContextKeys {
        &self.keys
    }

    pub(super) fn tokens(&mut self, count: usize) -> u64 {
        let first = self.next_token;
        self.next_token += count as u64;
        first
    }
}

const SERVER: &str = "the server";
const BACK_TOKENS: u64 = 1 << 62;
pub(super) const VERIFIER_HEAD_LEN: usize = 8;
/// Six words and a head (RFC 5531 §9).
const CREDENTIAL_AT: usize = 32;
const SEQ_LEN: usize = 4;
static NO_VERIFIER: [u8; 64] = [0; 64];

#[cfg(test)]
impl ClientContext {
    pub(crate) fn skip_to(&mut self, seq: u32) {
        self.next_seq = seq;
    }

    pub(crate) fn begin_at(&mut self, seq: GssSeq, w: &mut Writer) {
        self.write_header(Procedure::Data, seq, w, 0);
        self.sign_header(w.bytes_mut());
    }
}
