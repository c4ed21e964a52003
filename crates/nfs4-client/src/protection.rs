//! The interface between calls and their protection, and AUTH_NONE and AUTH_SYS, which protect
//! nothing.

use std::ops::Range;
use std::sync::Arc;

use vouch_oncrpc::{AuthSys, Flavor, OpaqueAuth};
use vouch_xdr::{Writer, Xdr};

use crate::CallbackSecurity;

/// Data that a protection associates with a call until its reply, for example a sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallTag(pub u64);

/// Failure to protect a call or to verify a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtectionError {
    #[error("the reply's verifier is invalid")]
    Verifier,
    #[error("the reply's body was altered")]
    Body,
    #[error("there is no usable security context")]
    NoContext,
}

/// A complete call that is not protected yet.
#[derive(Debug)]
pub struct OutgoingCall<'a> {
    /// The tag from [`Protection::begin`].
    pub tag: CallTag,
    /// The call without its record mark.
    pub bytes: &'a mut [u8],
}

/// An accepted reply that is not opened yet.
#[derive(Debug)]
pub struct IncomingReply<'a> {
    pub tag: CallTag,
    /// The reply without its record mark. Results are opened in place.
    pub record: &'a mut [u8],
    /// Flavour of the verifier and position of its body.
    pub verifier: (Flavor, Range<usize>),
    /// Position of the results. After opening, the position of the plaintext or the error.
    pub results: Result<Range<usize>, ProtectionError>,
}

/// Opens replies while other threads use the protection for calls.
pub trait Opener: Send + Sync {
    /// Opens a batch: see [`Protection::open_many`].
    fn open_many(&self, replies: &mut [IncomingReply<'_>]);
}

/// Protects calls and opens replies, for one user and one security flavour.
pub trait Protection: Send {
    /// Appends the credential, space for the verifier, and space that the arguments need before
    /// them.
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError>;

    /// Lays out the arguments, which begin at `body_start` and end at the end of `w`.
    fn end(&mut self, _tag: CallTag, _w: &mut Writer, _body_start: usize) {}

    /// Protects a batch of calls. After an error none of them may be sent.
    fn protect(&mut self, _calls: &mut [OutgoingCall<'_>]) -> Result<(), ProtectionError> {
        Ok(())
    }

    /// Returns whether calls must be protected before they are sent.
    fn protects(&self) -> bool {
        false
    }

    /// Returns whether the protection detects altered calls, so that a server can bind the client
    /// record and sessions to the caller's credential (RFC 8881, section 2.10.8.3).
    fn has_integrity(&self) -> bool {
        false
    }

    /// Returns the context for authenticated callbacks, with a new handle each time, or `None`
    /// without authentication.
    fn callback_security(&self) -> Option<CallbackSecurity> {
        None
    }

    /// Returns the target length of a batch, or zero if batches are no faster.
    fn batch_len(&self) -> usize {
        0
    }

    fn enctype(&self) -> Option<&'static str> {
        None
    }

    /// Returns the maximum number of calls in flight. The server may drop calls outside its
    /// sequence window (RFC 2203, section 5.3.3.1).
    fn outstanding_max(&self) -> usize {
        usize::MAX
    }

    /// Returns the record, including its mark, that destroys the context at the server. No call may
    /// follow. Returns `None` if there is no context.
    fn destroy_context(&mut self, _xid: u32) -> Option<Vec<u8>> {
        None
    }

    /// Verifies an accepted reply without results.
    fn verify(&mut self, tag: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError>;

    /// Returns an opener for other threads, or `None` if opening is cheap.
    fn opener(&self) -> Option<Arc<dyn Opener>> {
        None
    }

    /// Verifies and opens a batch of replies. A failure affects only its own reply.
    fn open_many(&mut self, _replies: &mut [IncomingReply<'_>]) {}

    /// Verifies and opens one reply without changing `body`. `scratch` holds the results if they
    /// need decryption.
    fn open<'a>(
        &mut self,
        tag: CallTag,
        verifier: OpaqueAuth<'_>,
        body: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ProtectionError>;
}

/// AUTH_NONE or AUTH_SYS, without cryptographic protection.
#[derive(Debug, Clone)]
pub struct Plain {
    flavor: Flavor,
    body: Vec<u8>,
}

impl Plain {
    pub const fn none() -> Self {
        Self { flavor: Flavor::NONE, body: Vec::new() }
    }

    pub fn sys(user: &AuthSys) -> Self {
        Self { flavor: Flavor::SYS, body: user.to_xdr() }
    }
}

impl Protection for Plain {
    fn begin(&mut self, w: &mut Writer, _header_start: usize) -> Result<CallTag, ProtectionError> {
        OpaqueAuth { flavor: self.flavor, body: &self.body }.encode(w);
        OpaqueAuth::NONE.encode(w);
        Ok(CallTag::default())
    }

    fn verify(&mut self, _tag: CallTag, _verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError> {
        Ok(())
    }

    fn open<'a>(
        &mut self,
        _tag: CallTag,
        _verifier: OpaqueAuth<'_>,
        body: &'a [u8],
        _scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ProtectionError> {
        Ok(body)
    }
}
