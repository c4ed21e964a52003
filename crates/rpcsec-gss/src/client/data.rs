//! Calls under a context, and their replies (RFC 2203, section 5.3).

use std::sync::Arc;

use vouch_krb5_seal::ContextKeys;
use vouch_oncrpc::{Flavor, OpaqueAuth};
use vouch_xdr::{Writer, pad_len};

use crate::wire::{LENGTH_LEN, integrity_body, privacy_body};
use crate::{Credential, GssSeq, Procedure, Service};

/// What a mechanism says of a context when it is complete.
#[derive(Clone)]
pub struct EstablishedClient {
    /// What protects messages.
    pub keys: Arc<ContextKeys>,
    /// How long it is good, seconds.
    pub lifetime_s: u64,
    /// Number of the first token that we send.
    pub token_seq: u64,
}

/// Why a call can't be protected, or a reply isn't believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The reply's verifier proves nothing.
    #[error("the reply's verifier does not hold")]
    Verifier,
    /// The reply's body was changed, or is of another call.
    #[error("the reply's body does not hold")]
    Body,
    /// All numbers of the context are used up, or the body can't be wrapped: a new context is needed.
    #[error("the security context is used up")]
    UsedUp,
}

/// A context, as a client uses it.
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
    pub(crate) fn new(established: EstablishedClient, handle: Vec<u8>, service: Service, window: u32) -> Self {
        let EstablishedClient { keys, lifetime_s, token_seq } = established;
        // RFC 2203, section 5.3.1: any number may be the first.
        Self { keys, handle, service, window, lifetime_s, next_seq: 1, next_token: token_seq }
    }

    /// How far behind the newest call others may be, by the server's word.
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// How long it is good from the moment it was made, seconds.
    pub const fn lifetime_s(&self) -> u64 {
        self.lifetime_s
    }

    /// The enctype that protects messages.
    pub fn enctype(&self) -> vouch_krb5_seal::Enctype {
        self.keys.enctype()
    }

    /// The service of its calls.
    pub const fn service(&self) -> Service {
        self.service
    }

    /// The server's name of it.
    pub fn handle(&self) -> &[u8] {
        &self.handle
    }

    /// Appends credential and verifier to a call whose header begins at `header_start` of `w`. The number is the call's: its reply is opened by it.
    ///
    /// # Errors
    /// [`OpenError::UsedUp`] after the last number.
    pub fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<GssSeq, OpenError> {
        self.header(Procedure::Data, w, header_start)
    }

    /// Appends credential and verifier of the call that ends the context: it goes to procedure 0 and has no arguments (RFC 2203, section 5.4).
    ///
    /// # Errors
    /// [`OpenError::UsedUp`] after the last number.
    pub fn destroy(&mut self, w: &mut Writer, header_start: usize) -> Result<GssSeq, OpenError> {
        self.header(Procedure::Destroy, w, header_start)
    }

    fn header(&mut self, procedure: Procedure, w: &mut Writer, header_start: usize) -> Result<GssSeq, OpenError> {
        let seq = GssSeq(self.next_seq);
        if seq >= GssSeq::MAX {
            return Err(OpenError::UsedUp);
        }
        self.next_seq += 1;
        self.write_header(procedure, seq, w, header_start);
        Ok(seq)
    }

    fn write_header(&mut self, procedure: Procedure, seq: GssSeq, w: &mut Writer, header_start: usize) {
        let credential = Credential { procedure, seq, service: self.service, handle: &self.handle };
        w.u32(Flavor::RPCSEC_GSS.0);
        w.count(credential.len());
        credential.encode(w);
        let token = self.token();
        let mic = self.keys.mic(token, &[&w.as_bytes()[header_start..]]);
        OpaqueAuth { flavor: Flavor::RPCSEC_GSS, body: mic.as_bytes() }.encode(w);
    }

    /// Wraps the arguments, which are all that `w` holds from `body_start` on. `confounder` is random.
    ///
    /// # Errors
    /// [`OpenError::UsedUp`]: then `w` is not to be sent.
    pub fn end(&mut self, seq: GssSeq, w: &mut Writer, body_start: usize, confounder: [u8; 16]) -> Result<(), OpenError> {
        let token = self.token();
        match self.service {
            Service::None => Ok(()),
            Service::Integrity => {
                insert(w.bytes_mut(), body_start, LENGTH_LEN + 4);
                w.set_u32(body_start + LENGTH_LEN, seq.0);
                let len = w.end_opaque(body_start + LENGTH_LEN);
                let mic = self.keys.mic(token, &[&w.as_bytes()[body_start + LENGTH_LEN..][..len]]);
                w.opaque(mic.as_bytes());
                Ok(())
            }
            Service::Privacy => {
                let head = LENGTH_LEN + self.keys.header_len();
                insert(w.bytes_mut(), body_start, head + 4);
                w.set_u32(body_start + head, seq.0);
                let end = w.len() + self.keys.trailer_len();
                w.bytes_mut().resize(end, 0);
                let sealed = &mut w.bytes_mut()[body_start + LENGTH_LEN..];
                self.keys.seal(token, confounder, sealed).map_err(|_| OpenError::UsedUp)?;
                w.end_opaque(body_start + LENGTH_LEN);
                Ok(())
            }
        }
    }

    /// Checks the verifier of the reply to the call of this number.
    ///
    /// # Errors
    /// [`OpenError::Verifier`].
    pub fn verify(&self, seq: GssSeq, verifier: OpaqueAuth<'_>) -> Result<(), OpenError> {
        if verifier.flavor != Flavor::RPCSEC_GSS {
            return Err(OpenError::Verifier);
        }
        self.keys.verify_mic(&[&seq.0.to_be_bytes()], verifier.body).map(drop).map_err(|_| OpenError::Verifier)
    }

    /// Opens the results of the call of this number; `scratch` is for those that can't be opened where they are.
    ///
    /// # Errors
    /// [`OpenError::Body`].
    pub fn open<'a>(&self, seq: GssSeq, body: &'a [u8], scratch: &'a mut Vec<u8>) -> Result<&'a [u8], OpenError> {
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
        // RFC 2203, section 5.3.2.2: the number inside is the call's.
        match results.split_first_chunk() {
            Some((number, results)) if *number == seq.0.to_be_bytes() => Ok(results),
            _ => Err(OpenError::Body),
        }
    }

    fn token(&mut self) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        token
    }
}

/// Makes room for `len` zero bytes at `at`.
fn insert(bytes: &mut Vec<u8>, at: usize, len: usize) {
    let end = bytes.len();
    bytes.resize(end + len, 0);
    bytes.copy_within(at..end, at + len);
    bytes[at..at + len].fill(0);
    debug_assert_eq!(pad_len(len), 0, "XDR comes in units of four bytes");
}

#[cfg(test)]
impl ClientContext {
    /// Goes on at this number.
    pub(crate) fn skip_to(&mut self, seq: u32) {
        self.next_seq = seq;
    }

    /// As [`Self::begin`], with a number that must not be used.
    pub(crate) fn begin_at(&mut self, seq: GssSeq, w: &mut Writer) {
        self.write_header(Procedure::Data, seq, w, 0);
    }
}
