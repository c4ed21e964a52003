//! RPCSEC_GSS callbacks (RFC 8881 §2.10.8.3). The client established the context, so no other host
//! can send callbacks.

use std::sync::Arc;

use vouch_nfs4::{Bytes, CallbackSec, GssCallbackHandles, GssService};
use vouch_oncrpc::{AuthStat, Call, Flavor};
use vouch_rpcsec_gss::{
    CallClass, Check, GssCall, ServerContext, Service, Verdict, check_many, classify,
};

/// The security context in which the server sends callbacks (RFC 8881 §2.10.8.3).
#[derive(Clone)]
pub struct CallbackSecurity {
    pub(crate) context: Arc<ServerContext>,
    pub(crate) service: Service,
    pub(crate) from_server: Vec<u8>,
}

impl std::fmt::Debug for CallbackSecurity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CallbackSecurity")
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

pub(crate) enum VerifiedCallback {
    Call(Box<GssCall>, Vec<u8>),
    /// Authentic, but the arguments cannot be unwrapped.
    Garbage(Box<GssCall>),
    Denied(AuthStat),
    Dropped,
}

impl CallbackSecurity {
    /// For CREATE_SESSION and BACKCHANNEL_CTL.
    pub fn offer(&self) -> CallbackSec<'_> {
        let service = match self.service {
            Service::None => GssService::None,
            Service::Integrity => GssService::Integrity,
            Service::Privacy => GssService::Privacy,
        };
        let from_client = Bytes(&self.context.handle_ref().0);
        CallbackSec::Gss(GssCallbackHandles {
            service,
            from_server: Bytes(&self.from_server),
            from_client,
        })
    }

    pub(crate) fn verify(&self, record: &[u8], call: &Call<'_>) -> VerifiedCallback {
        if call.cred.flavor != Flavor::RPCSEC_GSS {
            return VerifiedCallback::Denied(AuthStat::TOO_WEAK);
        }
        let find = |name: &[u8]| (*name == self.context.handle().0).then(|| self.context.clone());
        let call = match classify(record, call, find) {
            CallClass::Call(call) if call.is_destroy() => {
                return VerifiedCallback::Denied(AuthStat::BAD_CRED);
            }
            CallClass::Call(call) => Box::new(call),
            // A server never establishes a context with the client.
            CallClass::Init(_) | CallClass::Garbage => {
                return VerifiedCallback::Denied(AuthStat::BAD_CRED);
            }
            CallClass::Refused(stat) => return VerifiedCallback::Denied(stat),
        };
        if call.service() != self.service {
            return VerifiedCallback::Denied(AuthStat::TOO_WEAK);
        }
        let mut own = record.to_vec();
        let verdict = {
            let mut checks = [Check::new(&mut own, &call)];
            // No table expires this context, so its time of use does not matter.
            check_many(&mut checks, 0);
            let [check] = checks;
            check.verdict
        };
        match verdict {
            Verdict::Genuine(args) => VerifiedCallback::Call(call, own[args].to_vec()),
            Verdict::Garbage => VerifiedCallback::Garbage(call),
            Verdict::Refused(stat) => VerifiedCallback::Denied(stat),
            Verdict::Dropped => VerifiedCallback::Dropped,
        }
    }
}
