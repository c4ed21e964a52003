//! Classifies an RPCSEC_GSS call before anything is verified.

use std::ops::Range;
use std::sync::Arc;

use vouch_oncrpc::{AuthStat, Call, Flavor};
use vouch_xdr::pad_len;

use crate::wire::decode_init_args;
use crate::{Credential, GssSeq, InitCall, Procedure, ServerContext, Service};

/// What an RPCSEC_GSS call wants.
pub enum CallClass {
    /// Verify it with [`check_many`](crate::check_many).
    Call(GssCall),
    /// Creation of a context.
    Init(InitCall),
    /// Creation of a context with undecodable arguments.
    Garbage,
    /// Deny the call with this status.
    Refused(AuthStat),
}

/// Has the positions of the call's parts in the record.
#[derive(Clone)]
pub struct GssCall {
    pub(crate) context: Arc<ServerContext>,
    pub(crate) xid: u32,
    pub(crate) seq: GssSeq,
    pub(crate) service: Service,
    pub(crate) destroy: bool,
    pub(crate) header_len: usize,
    pub(crate) verifier: Range<usize>,
    pub(crate) args_at: usize,
}

impl GssCall {
    /// The context that the call names; unproven until it is verified.
    pub const fn context(&self) -> &Arc<ServerContext> {
        &self.context
    }

    /// Protection of the arguments and of the reply.
    pub const fn service(&self) -> Service {
        self.service
    }

    /// Valid only after verification.
    pub const fn is_destroy(&self) -> bool {
        self.destroy
    }

    /// Transaction id of the call.
    pub const fn xid(&self) -> u32 {
        self.xid
    }
}

/// `record` is the record of `call`.
pub fn classify(
    record: &[u8],
    call: &Call<'_>,
    find: impl FnOnce(&[u8]) -> Option<Arc<ServerContext>>,
) -> CallClass {
    let credential = match Credential::decode(call.cred.body) {
        Ok(credential) => credential,
        Err(error) => return CallClass::Refused(error.auth_stat()),
    };
    // RFC 2203 §5.2.2 and 5.4: control calls use the NULL procedure.
    if credential.procedure != Procedure::Data && call.procedure != 0 {
        return CallClass::Refused(AuthStat::BAD_CRED);
    }
    let destroy = match credential.procedure {
        Procedure::Data => false,
        Procedure::Destroy => true,
        Procedure::Init | Procedure::ContinueInit => {
            let named = credential.procedure == Procedure::ContinueInit;
            if named == credential.handle.is_empty() {
                return CallClass::Refused(AuthStat::BAD_CRED);
            }
            let Ok(token) = decode_init_args(call.args) else { return CallClass::Garbage };
            return CallClass::Init(InitCall {
                xid: call.xid,
                handle: credential.handle.to_vec(),
                token: token.to_vec(),
            });
        }
    };
    if call.verf.flavor != Flavor::RPCSEC_GSS {
        return CallClass::Refused(AuthStat::BAD_VERF);
    }
    // RFC 2203 §5.3.3.3: an unknown context must be created again.
    let Some(context) = find(credential.handle) else {
        return CallClass::Refused(AuthStat::RPCSEC_GSS_CRED_PROBLEM);
    };
    let header_len = CREDENTIAL_AT + call.cred.body.len() + pad_len(call.cred.body.len());
    let verifier_at = header_len + AUTH_HEAD_LEN;
    CallClass::Call(GssCall {
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

const AUTH_HEAD_LEN: usize = 8;
/// Six words and a head (RFC 5531 §9).
const CREDENTIAL_AT: usize = 24 + AUTH_HEAD_LEN;
