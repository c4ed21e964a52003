//! The seam between calls and what secures them. AUTH_NONE and AUTH_SYS here, which secure nothing.

use std::ops::Range;
use std::sync::Arc;

use vouch_oncrpc::{AuthSys, Flavor, OpaqueAuth};
use vouch_xdr::{Writer, Xdr};

use crate::CallbackSecurity;

/// What a protection remembers of a call until its reply: a sequence number of its context, for
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallTag(pub u64);

/// Why a call can't be protected, or a reply isn't believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtectionError {
    /// The reply's verifier proves nothing.
    #[error("the reply's verifier does not hold")]
    Verifier,
    /// The reply's body was changed, or is of another call.
    #[error("the reply's body does not hold")]
    Body,
    /// There is no context to protect calls by.
    #[error("the security context is gone")]
    NoContext,
}

/// A call that was begun and ended, and waits to be protected.
#[derive(Debug)]
pub struct OutgoingCall<'a> {
    /// What was said of it at its begin.
    pub tag: CallTag,
    /// All of it but the record's mark.
    pub bytes: &'a mut [u8],
}

/// A reply that was accepted, and waits to be opened.
#[derive(Debug)]
pub struct IncomingReply<'a> {
    /// The call's.
    pub tag: CallTag,
    /// All of it but the record's mark. Results are opened there.
    pub record: &'a mut [u8],
    /// Flavour of the verifier, and where its body lies.
    pub verifier: (Flavor, Range<usize>),
    /// Where the results are; afterwards in clear, unless the reply is not believed.
    pub results: Result<Range<usize>, ProtectionError>,
}

/// Opens replies where the protection is not at hand: others secure calls by it meanwhile.
pub trait Opener: Send + Sync {
    /// As [`Protection::open_many`].
    fn open_many(&self, replies: &mut [IncomingReply<'_>]);
}

/// Secures calls and opens replies: one flavour for one user.
pub trait Protection: Send {
    /// Appends the credential, room for the verifier, and what room the arguments need before them,
    /// to a call whose header begins at `header_start` of `w`.
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError>;

    /// Lays the arguments out, which are all that `w` holds from `body_start` on.
    fn end(&mut self, _tag: CallTag, _w: &mut Writer, _body_start: usize) {}

    /// Protects calls that leave together. None of them is to be sent after an error, in any form.
    fn protect(&mut self, _calls: &mut [OutgoingCall<'_>]) -> Result<(), ProtectionError> {
        Ok(())
    }

    /// Whether a call is not to be sent before it is protected.
    fn protects(&self) -> bool {
        false
    }

    /// Whether calls can't be altered on their way, so that a server can hold the client's record
    /// and sessions for the one who calls (RFC 8881, section 2.10.8.3).
    fn has_integrity(&self) -> bool {
        false
    }

    /// What lets the server prove its callbacks as it proves its replies, under a name of its own
    /// each time; nothing, if it proves none.
    fn callback_security(&self) -> Option<CallbackSecurity> {
        None
    }

    /// Bytes of calls, or of replies, that are worth having in work together where so much is
    /// there: none if one after the other is as fast.
    fn batch_len_min(&self) -> usize {
        0
    }

    /// Of Kerberos, the name of its encryption type.
    fn enctype(&self) -> Option<&'static str> {
        None
    }

    /// How many calls may be out at a time: beyond, the other end may drop some as older than its
    /// window (RFC 2203, section 5.3.3.1).
    fn outstanding_max(&self) -> usize {
        usize::MAX
    }

    /// The call that ends the context at the server, with its record's mark; nothing where there is
    /// none to end. No call goes under it from then on.
    fn destroy_context(&mut self, _xid: u32) -> Option<Vec<u8>> {
        None
    }

    /// Checks the verifier of a reply that was accepted and has no results.
    fn verify(&mut self, tag: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError>;

    /// What opens its replies elsewhere; nothing, where that takes no time worth it.
    fn opener(&self) -> Option<Arc<dyn Opener>> {
        None
    }

    /// Checks the verifiers of replies that came together, and opens their results. One that does
    /// not hold says so and changes nothing for the others.
    fn open_many(&mut self, _replies: &mut [IncomingReply<'_>]) {}

    /// The same for a reply that must stay as it is; `scratch` is for results that can't be opened
    /// in place.
    fn open<'a>(
        &mut self,
        tag: CallTag,
        verifier: OpaqueAuth<'_>,
        body: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ProtectionError>;
}

/// AUTH_NONE or AUTH_SYS: says who calls, proves nothing.
#[derive(Debug, Clone)]
pub struct Plain {
    flavor: Flavor,
    body: Vec<u8>,
}

impl Plain {
    /// Nobody.
    pub const fn none() -> Self {
        Self { flavor: Flavor::NONE, body: Vec::new() }
    }

    /// This user.
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
