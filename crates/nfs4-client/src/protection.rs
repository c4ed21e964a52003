//! The seam between calls and what secures them. AUTH_NONE and AUTH_SYS here, which secure nothing.

use vouch_oncrpc::{AuthSys, Flavor, OpaqueAuth};
use vouch_xdr::{Writer, Xdr};

/// What a protection remembers of a call until its reply: a sequence number of its context, for one.
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

/// Secures calls and opens replies: one flavour for one user.
pub trait Protection: Send {
    /// Appends the credential and the verifier to a call whose header begins at `header_start` of `w`.
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError>;

    /// Wraps the arguments, which are all that `w` holds from `body_start` on.
    fn end(&mut self, tag: CallTag, w: &mut Writer, body_start: usize) -> Result<(), ProtectionError>;

    /// Checks a reply's verifier and opens its results; `scratch` is for results that can't be opened in place.
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

    fn end(&mut self, _tag: CallTag, _w: &mut Writer, _body_start: usize) -> Result<(), ProtectionError> {
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
