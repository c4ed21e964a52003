//! What a call under RPCSEC_GSS is, before anything of it is proven.

use std::ops::Range;
use std::sync::Arc;

use vouch_oncrpc::{AuthStat, Call, Flavor};
use vouch_xdr::pad_len;

use crate::wire::decode_init_args;
use crate::{Credential, GssSeq, InitCall, Procedure, ServerContext, Service};

/// What a call is.
pub enum Arrival {
    /// A call under a context: [`check_many`](crate::check_many) says what it is worth.
    Call(GssCall),
    /// A context is to be made.
    Init(InitCall),
    /// Arguments that can't be read, of a call that makes a context.
    Garbage,
    /// It is denied.
    Refused(AuthStat),
}

/// A call under a context: where its parts lie in its record.
#[derive(Clone)]
pub struct GssCall {
    pub(crate) context: Arc<ServerContext>,
    pub(crate) xid: u32,
    pub(crate) seq: GssSeq,
    pub(crate) service: Service,
    pub(crate) destroy: bool,
    /// The header up to the credential's end, which the verifier is over.
    pub(crate) header_len: usize,
    pub(crate) verifier: Range<usize>,
    pub(crate) args_at: usize,
}

impl GssCall {
    /// The context.
    pub const fn context(&self) -> &Arc<ServerContext> {
        &self.context
    }

    /// The service that it asks for.
    pub const fn service(&self) -> Service {
        self.service
    }

    /// Whether it ends its context: once checked, and not before.
    pub const fn is_destroy(&self) -> bool {
        self.destroy
    }

    /// Transaction of the call.
    pub const fn xid(&self) -> u32 {
        self.xid
    }
}

/// Reads the credential of a call whose flavour is RPCSEC_GSS; `record` is what `call` was read
/// from. `find` looks a context up by its name.
pub fn arrive(record: &[u8], call: &Call<'_>, find: impl FnOnce(&[u8]) -> Option<Arc<ServerContext>>) -> Arrival {
    let credential = match Credential::decode(call.cred.body) {
        Ok(credential) => credential,
        Err(error) => return Arrival::Refused(error.auth_stat()),
    };
    // RFC 2203, sections 5.2.2 and 5.4: control calls go to the procedure that does nothing.
    if credential.procedure != Procedure::Data && call.procedure != 0 {
        return Arrival::Refused(AuthStat::BAD_CRED);
    }
    let destroy = match credential.procedure {
        Procedure::Data => false,
        Procedure::Destroy => true,
        Procedure::Init | Procedure::ContinueInit => {
            let named = credential.procedure == Procedure::ContinueInit;
            if named == credential.handle.is_empty() {
                return Arrival::Refused(AuthStat::BAD_CRED);
            }
            let Ok(token) = decode_init_args(call.args) else { return Arrival::Garbage };
            return Arrival::Init(InitCall { xid: call.xid, handle: credential.handle.to_vec(), token: token.to_vec() });
        }
    };
    if call.verf.flavor != Flavor::RPCSEC_GSS {
        return Arrival::Refused(AuthStat::BAD_VERF);
    }
    // RFC 2203, section 5.3.3.3: a context that isn't known is to be made anew.
    let Some(context) = find(credential.handle) else { return Arrival::Refused(AuthStat::RPCSEC_GSS_CRED_PROBLEM) };
    let header_len = CREDENTIAL_AT + call.cred.body.len() + pad_len(call.cred.body.len());
    let verifier_at = header_len + AUTH_HEAD_LEN;
    Arrival::Call(GssCall {
        context,
        xid: call.xid,
        seq: credential.seq,
        service: credential.service,
        destroy,
        header_len,
        verifier: verifier_at..verifier_at + call.verf.body.len(),
        args_at: record.len() - call.args.len(),
    })
}

/// Flavour and length before the body of a credential or a verifier.
const AUTH_HEAD_LEN: usize = 8;
/// Where a credential's body begins in a call: six words, then its own head (RFC 5531, section 9).
const CREDENTIAL_AT: usize = 24 + AUTH_HEAD_LEN;
