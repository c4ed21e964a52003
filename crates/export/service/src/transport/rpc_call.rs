//! Decodes a record into a call for the engine, or answers it. Checks program, version and flavour
//! only.

use std::sync::Arc;

use bytes::Bytes;
use vouch_nfs4_server::{Connection, Flavour, Principal, Request};
use vouch_oncrpc::{
    Accepted, AuthStat, AuthSys, Call, CallError, Denied, Flavor, OpaqueAuth, Reply, ReplyBody,
    begin_record,
};
use vouch_rpcsec_gss::{Envelope, GssCall, InitCall, ServerContext, Service, Verdict};
use vouch_xdr::{Reader, Writer, Xdr as _};

use crate::gss::Protected;

pub(crate) enum Incoming {
    Compound(Request, Option<Envelope>),
    Answer(Vec<u8>),
    /// A refused credential of RPCSEC_GSS, which the audit trail has already.
    Refused(Vec<u8>, AuthStat),
    StartTls(Vec<u8>),
    Denied(Vec<u8>, AuthStat, vouch_audit::Flavour, &'static str),
    Sealed(Vec<u8>, Envelope),
    Destroyed(Vec<u8>, Envelope, Arc<ServerContext>),
    Init(InitCall),
    CallbackReply(u32, Bytes),
    Broken,
    /// No answer (RFC 2203 §5.3.3.1): a waiting client retries after the connection is closed.
    Dropped,
}

/// Clients repeat their AUTH_SYS credential in each call.
#[derive(Default)]
pub(crate) struct LastCredential {
    known: Option<(Box<[u8]>, Principal)>,
}

pub(crate) fn read(
    record: Bytes,
    connection: &Arc<Connection>,
    last: &mut LastCredential,
    offers_tls: bool,
    reply: Vec<u8>,
) -> Incoming {
    let call = match Call::decode(&record) {
        Ok(call) => call,
        Err(CallError::NotACall(REPLY)) => {
            return record.first_chunk().map_or(Incoming::Broken, |xid| {
                Incoming::CallbackReply(u32::from_be_bytes(*xid), record.clone())
            });
        }
        Err(error) => {
            return error
                .reply()
                .map_or(Incoming::Broken, |answer| Incoming::Answer(encode(&answer, reply)));
        }
    };
    let xid = call.xid;
    if let Some(outcome) = other_than_compound(&call) {
        if offers_tls && call.cred.flavor == Flavor::TLS && matches!(outcome, Accepted::Success(_))
        {
            return Incoming::StartTls(encode(&starttls(xid), reply));
        }
        return Incoming::Answer(encode(&Reply::accepted(xid, outcome), reply));
    }
    let (principal, flavour) = match authenticate(&call.cred, &call.verf, last) {
        Ok(who) => who,
        Err(stat) => {
            let (flavour, detail) = match (call.cred.flavor, stat) {
                (Flavor::SYS, AuthStat::BAD_VERF) => {
                    (vouch_audit::Flavour::Sys, "AUTH_SYS with a verifier that does not go with it")
                }
                (Flavor::SYS, _) => {
                    (vouch_audit::Flavour::Sys, "a credential of AUTH_SYS that can't be read")
                }
                _ => (vouch_audit::Flavour::None, "an unknown flavour"),
            };
            return Incoming::Denied(
                encode(&Reply::denied(xid, Denied::AuthError(stat)), reply),
                stat,
                flavour,
                detail,
            );
        }
    };
    let principal = of_certificate(connection).unwrap_or(principal);
    let body = record.slice(record.len() - call.args.len()..);
    let reply = encode(&Reply::accepted(xid, Accepted::Success(&[])), reply);
    let spans_allowed = flavour.plain_data();
    Incoming::Compound(
        Request {
            connection: connection.clone(),
            xid,
            principal,
            flavour,
            body,
            reply,
            reply_tail_len: 0,
            spans_allowed,
            enctype: None,
        },
        None,
    )
}

pub(crate) fn read_protected(
    record: &Bytes,
    what: Protected,
    connection: &Arc<Connection>,
    reply: Vec<u8>,
    now_ms: u64,
) -> Incoming {
    let denied = |xid, stat, reply| {
        Incoming::Refused(encode(&Reply::denied(xid, Denied::AuthError(stat)), reply), stat)
    };
    let Ok(call) = Call::decode(record) else { return Incoming::Broken };
    let outcome = other_than_compound(&call);
    let accepted =
        |xid, outcome, reply| Incoming::Answer(encode(&Reply::accepted(xid, outcome), reply));
    let (gss, verdict) = match (what, outcome) {
        (Protected::Call(gss, verdict), _) => (gss, verdict),
        // Context creation uses the NULL procedure of an existing program and version (RFC 2203
        // §5.2.2).
        (Protected::Init(init), Some(Accepted::Success(_)) | None) => return Incoming::Init(init),
        (Protected::Garbage(xid), Some(Accepted::Success(_)) | None) => {
            return accepted(xid, Accepted::GarbageArgs, reply);
        }
        (Protected::Init(InitCall { xid, .. }) | Protected::Garbage(xid), Some(outcome)) => {
            return accepted(xid, outcome, reply);
        }
        (Protected::Refused(xid, stat), _) => return denied(xid, stat, reply),
    };
    let args = match verdict {
        Verdict::Genuine(_) if gss.context().has_ended(now_ms) => {
            return denied(gss.xid(), AuthStat::RPCSEC_GSS_CTX_PROBLEM, reply);
        }
        Verdict::Genuine(args) => args,
        Verdict::Refused(stat) => return denied(gss.xid(), stat, reply),
        Verdict::Dropped => return Incoming::Dropped,
        Verdict::Garbage => {
            let (bytes, envelope) = sealed(&gss, Accepted::GarbageArgs, reply);
            return Incoming::Sealed(bytes, envelope);
        }
    };
    let (reply, envelope) = sealed(&gss, outcome.unwrap_or(Accepted::Success(&[])), reply);
    if gss.is_destroy() && matches!(outcome, Some(Accepted::Success(_))) {
        return Incoming::Destroyed(reply, envelope, gss.context().clone());
    }
    if outcome.is_some() {
        return Incoming::Sealed(reply, envelope);
    }
    let flavour = match gss.service() {
        Service::None => Flavour::Krb5,
        Service::Integrity => Flavour::Krb5i,
        Service::Privacy => Flavour::Krb5p,
    };
    let request = Request {
        connection: connection.clone(),
        xid: call.xid,
        principal: Principal::Gss { name: gss.context().principal().clone() },
        flavour,
        enctype: Some(gss.context().keys().enctype() as u32),
        body: record.slice(args),
        reply,
        reply_tail_len: envelope.tail_len(),
        spans_allowed: flavour.plain_data(),
    };
    Incoming::Compound(request, Some(envelope))
}

fn sealed(call: &GssCall, outcome: Accepted<'_>, buffer: Vec<u8>) -> (Vec<u8>, Envelope) {
    let mut w = Writer::append_to(buffer);
    begin_record(&mut w);
    let envelope = Envelope::begin(call, outcome, &mut w);
    (w.into_bytes(), envelope)
}

fn other_than_compound(call: &Call<'_>) -> Option<Accepted<'static>> {
    match (call.program, call.version, call.procedure) {
        (PROGRAM, VERSION, COMPOUND) => None,
        // NULL needs no credential (RFC 8881 §16.1.1).
        (PROGRAM, VERSION, 0) => Some(Accepted::Success(&[])),
        (PROGRAM, VERSION, _) => Some(Accepted::ProcUnavail),
        (PROGRAM, ..) => Some(Accepted::ProgMismatch { low: VERSION, high: VERSION }),
        _ => Some(Accepted::ProgUnavail),
    }
}

pub(crate) fn denial(xid: u32, stat: AuthStat, reply: Vec<u8>) -> Vec<u8> {
    encode(&Reply::denied(xid, Denied::AuthError(stat)), reply)
}

/// A callback connection offers no program.
pub(crate) fn refuse(record: &[u8], reply: Vec<u8>) -> Option<Vec<u8>> {
    let refusal = match Call::decode(record) {
        Ok(call) => Reply::accepted(call.xid, Accepted::ProgUnavail),
        Err(error) => error.reply()?,
    };
    Some(encode(&refusal, reply))
}

fn authenticate(
    cred: &OpaqueAuth<'_>,
    verf: &OpaqueAuth<'_>,
    last: &mut LastCredential,
) -> Result<(Principal, Flavour), AuthStat> {
    match cred.flavor {
        Flavor::NONE => Ok((Principal::None, Flavour::None)),
        Flavor::SYS => {
            // AUTH_SYS has an AUTH_NONE verifier (RFC 5531, appendix A).
            if verf.flavor != Flavor::NONE {
                return Err(AuthStat::BAD_VERF);
            }
            if let Some((body, principal)) = &last.known
                && **body == *cred.body
            {
                return Ok((principal.clone(), Flavour::Sys));
            }
            let principal = sys(cred.body).ok_or(AuthStat::BAD_CRED)?;
            last.known = Some((cred.body.into(), principal.clone()));
            Ok((principal, Flavour::Sys))
        }
        // This server never issues a short credential (RFC 5531, appendix A).
        Flavor::SHORT => Err(AuthStat::REJECTED_CRED),
        _ => Err(AuthStat::BAD_CRED),
    }
}

/// All calls of a user's certificate act as this user, whatever AUTH_SYS says.
fn of_certificate(connection: &Connection) -> Option<Principal> {
    let user = connection.tls()?.certificate.as_ref()?.user.as_ref()?;
    Some(Principal::Certificate { name: user.clone() })
}

/// RFC 9289 §4.1: the verifier says that the server is ready for a handshake.
fn starttls(xid: u32) -> Reply<'static> {
    let verf = OpaqueAuth { flavor: Flavor::NONE, body: vouch_rpc_tls::STARTTLS };
    Reply { xid, body: ReplyBody::Accepted { verf, outcome: Accepted::Success(&[]) } }
}

fn sys(body: &[u8]) -> Option<Principal> {
    let mut r = Reader::new(body);
    let AuthSys { uid, gid, gids, .. } = AuthSys::decode(&mut r).ok()?;
    r.finish().ok()?;
    Some(Principal::Sys { uid, gid, gids: gids.into() })
}

fn encode(reply: &Reply<'_>, buffer: Vec<u8>) -> Vec<u8> {
    let mut w = Writer::append_to(buffer);
    let start = begin_record(&mut w);
    reply.encode(&mut w);
    let mut bytes = w.into_bytes();
    // Set again after the results of a COMPOUND.
    vouch_oncrpc::end_record(&mut bytes, start, 0);
    debug_assert!(
        !matches!(reply.body, ReplyBody::Accepted { outcome: Accepted::Success(results), .. } if !results.is_empty())
    );
    bytes
}

/// RFC 8881 §16.
const PROGRAM: u32 = 100_003;
const VERSION: u32 = 4;
const COMPOUND: u32 = 1;
/// RFC 5531 §9.
const REPLY: u32 = 1;

#[cfg(test)]
mod tests;
