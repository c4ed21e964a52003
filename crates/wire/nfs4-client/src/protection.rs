//! The interface of protections, and AUTH_NONE and AUTH_SYS, which protect nothing.

use std::ops::Range;
use std::sync::Arc;

use vouch_oncrpc::{AuthSys, Flavor, OpaqueAuth};
use vouch_xdr::{Writer, Xdr};

use crate::CallbackSecurity;

/// Belongs to a call until its reply, for example a sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallTag(pub u64);

/// Why a call or a reply is unprotected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtectionError {
    /// The reply does not belong to the call.
    #[error("the reply's verifier is invalid")]
    Verifier,
    /// The reply is not genuine.
    #[error("the reply's body was altered")]
    Body,
    /// Establish a new context.
    #[error("there is no usable security context")]
    NoContext,
}

/// Complete, but not protected yet.
#[derive(Debug)]
pub struct OutgoingCall<'a> {
    /// From [`Protection::begin`].
    pub tag: CallTag,
    /// The whole call; protected in place.
    pub bytes: &'a mut [u8],
}

/// Accepted, but not opened yet.
#[derive(Debug)]
pub struct IncomingReply<'a> {
    /// Of the reply's call.
    pub tag: CallTag,
    /// Without the record mark. Results are opened in place.
    pub record: &'a mut [u8],
    /// Flavour, and position of the body.
    pub verifier: (Flavor, Range<usize>),
    /// Position; after opening, that of the plaintext, or the error.
    pub results: Result<Range<usize>, ProtectionError>,
}

/// Opens replies while other threads protect calls.
pub trait Opener: Send + Sync {
    /// See [`Protection::open_many`].
    fn open_many(&self, replies: &mut [IncomingReply<'_>]);
}

/// Protects calls of one user under one security flavour.
pub trait Protection: Send {
    /// Appends the credential, and space for the verifier and before the arguments.
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError>;

    /// As [`Protection::begin`], with the credential of another caller (AUTH_SYS). A context of
    /// RPCSEC_GSS has one user, so it ignores the caller.
    fn begin_as(
        &mut self,
        _caller: Option<&[u8]>,
        w: &mut Writer,
        header_start: usize,
    ) -> Result<CallTag, ProtectionError> {
        self.begin(w, header_start)
    }

    /// The arguments are between `body_start` and the end of `w`.
    fn end(&mut self, _tag: CallTag, _w: &mut Writer, _body_start: usize) {}

    /// After an error none of the calls may be sent.
    fn protect(&mut self, _calls: &mut [OutgoingCall<'_>]) -> Result<(), ProtectionError> {
        Ok(())
    }

    /// Calls must be protected before they are sent.
    fn protects(&self) -> bool {
        false
    }

    /// The server can then bind the client record and sessions to the caller's credential (RFC 8881
    /// §2.10.8.3).
    fn has_integrity(&self) -> bool {
        false
    }

    /// The context for authenticated callbacks, with a new handle each time; `None` without
    /// authentication.
    fn callback_security(&self) -> Option<CallbackSecurity> {
        None
    }

    /// Target length in bytes; zero if batches are no faster.
    fn batch_len(&self) -> usize {
        0
    }

    /// Encryption type under Kerberos.
    fn enctype(&self) -> Option<&'static str> {
        None
    }

    /// The server may drop calls outside its sequence window (RFC 2203 §5.3.3.1).
    fn outstanding_max(&self) -> usize {
        usize::MAX
    }

    /// With the record mark. No call may follow. `None` without a context.
    fn destroy_context(&mut self, _xid: u32) -> Option<Vec<u8>> {
        None
    }

    /// Verifies an accepted reply without results.
    fn verify(&mut self, tag: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError>;

    /// For other threads; `None` if opening is cheap.
    fn opener(&self) -> Option<Arc<dyn Opener>> {
        None
    }

    /// Verifies and opens a batch. A failure affects only its own reply.
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

/// AUTH_NONE or AUTH_SYS.
#[derive(Debug, Clone)]
pub struct Plain {
    flavor: Flavor,
    body: Vec<u8>,
}

impl Plain {
    /// AUTH_NONE.
    pub const fn none() -> Self {
        Self { flavor: Flavor::NONE, body: Vec::new() }
    }

    /// AUTH_SYS.
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

    fn begin_as(
        &mut self,
        caller: Option<&[u8]>,
        w: &mut Writer,
        header_start: usize,
    ) -> Result<CallTag, ProtectionError> {
        let Some(body) = caller else { return self.begin(w, header_start) };
        OpaqueAuth { flavor: Flavor::SYS, body }.encode(w);
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
