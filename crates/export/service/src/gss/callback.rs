//! By a context of the client (RFC 8881 §2.10.8.3).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use vouch_nfs4_server::{
    CallbackContext, CallbackContexts, CallbackId, ContextLife, Flavour, Principal,
};
use vouch_oncrpc::{Accepted, Call, Reply, ReplyBody, begin_record, end_record};
use vouch_rpcsec_gss::{ClientContext, GssSeq, ServerContext, Service};
use vouch_xdr::Writer;

use super::contexts::Gss;
use super::random;
use crate::clock;

#[derive(Default)]
pub(super) struct Awaited(Mutex<HashMap<CallbackId, Arc<Calling>>>);

struct Calling {
    by: ClientContext,
    seq: GssSeq,
    context: Weak<ServerContext>,
}

pub(crate) enum Answered {
    Plain,
    Genuine(Vec<u8>),
    Forged,
}

impl Gss {
    /// `None` if the context has expired or has no sequence numbers left.
    pub(crate) fn protect_callback(
        &self,
        id: CallbackId,
        record: &[u8],
        by: &CallbackContext,
    ) -> Option<Vec<u8>> {
        let call = Call::decode(record).ok()?;
        let found = self.contexts.lock().find(&by.from_server, clock::boot_ms())?;
        let service = match by.flavour {
            Flavour::Krb5i => Service::Integrity,
            Flavour::Krb5p => Service::Privacy,
            Flavour::Krb5 | Flavour::Sys | Flavour::None => Service::None,
        };
        let mut context = found.back_channel(&by.from_client, service);
        let mut w = Writer::new();
        let start = begin_record(&mut w);
        let header_start = w.len();
        [call.xid, 0, vouch_oncrpc::RPC_VERSION, call.program, call.version, call.procedure]
            .into_iter()
            .for_each(|word| w.u32(word));
        let seq = context.begin(&mut w, header_start).ok()?;
        let body_start = w.len();
        w.raw(call.args);
        let mut confounder = [0; 16];
        if !random::fill(&mut confounder) {
            return None;
        }
        context.end(seq, &mut w, header_start, body_start, confounder).ok()?;
        end_record(w.bytes_mut(), start, 0);
        self.awaited
            .0
            .lock()
            .insert(id, Arc::new(Calling { by: context, seq, context: Arc::downgrade(&found) }));
        Some(w.into_bytes())
    }

    pub(crate) fn open_callback_answer(&self, id: CallbackId, record: &[u8]) -> Answered {
        let Some(awaited) = self.awaited.0.lock().get(&id).cloned() else { return Answered::Plain };
        let Calling { by, seq, context } = &*awaited;
        let Ok(reply) = Reply::decode(record) else { return Answered::Forged };
        let mut scratch = Vec::new();
        let plain = match reply.body {
            // A denied reply has no verifier (RFC 5531 §9). It means failure.
            ReplyBody::Denied(_) => Some(record.to_vec()),
            ReplyBody::Accepted { verf, .. } if by.verify(*seq, verf).is_err() => None,
            ReplyBody::Accepted { outcome: Accepted::Success(body), .. } => by
                .open(*seq, body, &mut scratch)
                .ok()
                .map(|results| encode(&Reply::accepted(reply.xid, Accepted::Success(results)))),
            ReplyBody::Accepted { outcome, .. } => {
                Some(encode(&Reply::accepted(reply.xid, outcome)))
            }
        };
        let proven = plain.is_some() && !matches!(reply.body, ReplyBody::Denied(_));
        context
            .upgrade()
            .filter(|_| proven)
            .iter()
            .for_each(|context| context.touch(clock::boot_ms()));
        match plain {
            Some(plain) => {
                self.forget_callback(id);
                Answered::Genuine(plain)
            }
            None => Answered::Forged,
        }
    }

    pub(crate) fn log_forged_answer(&self, peer: SocketAddr) {
        if let Some(omitted) = self.refusals.lock().admit(peer.ip(), clock::mono_ms()) {
            tracing::warn!(%peer, omitted, "ignoring a forged answer to a callback");
        }
    }

    pub(crate) fn forget_callback(&self, id: CallbackId) {
        let gone = self.awaited.0.lock().remove(&id);
        drop(gone);
    }
}

impl CallbackContexts for Gss {
    /// Handles are not encrypted: an eavesdropper could name another client's context.
    fn is_usable(&self, from_server: &[u8], principal: &Principal) -> bool {
        let Principal::Gss { name } = principal else { return false };
        self.contexts
            .lock()
            .find(from_server, clock::boot_ms())
            .is_some_and(|context| context.principal() == name)
    }

    fn life(&self, from_server: &[u8]) -> Arc<dyn ContextLife> {
        let found = self.contexts.lock().find(from_server, clock::boot_ms());
        Arc::new(Life(found.map_or_else(Weak::new, |context| Arc::downgrade(&context))))
    }
}

/// Weak: keys of an ended context are wiped.
struct Life(Weak<ServerContext>);

impl ContextLife for Life {
    fn left_ms(&self) -> u64 {
        self.0.upgrade().map_or(0, |context| context.left_ms(clock::boot_ms_nearly()))
    }
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ms left", self.left_ms())
    }
}

fn encode(reply: &Reply<'_>) -> Vec<u8> {
    let mut w = Writer::new();
    reply.encode(&mut w);
    w.into_bytes()
}
