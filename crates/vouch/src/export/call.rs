//! From a record to a call that the engine takes, or to an answer that needs no engine. Decides about RPC only: program, version, flavour.

use std::sync::Arc;

use bytes::Bytes;
use vouch_nfs4_server::{Connection, Flavour, Principal, Request};
use vouch_oncrpc::{Accepted, AuthStat, AuthSys, Call, CallError, Denied, Flavor, OpaqueAuth, Reply, ReplyBody, begin_record};
use vouch_xdr::{Reader, Writer, Xdr as _};

/// What a record is.
pub(super) enum Incoming {
    /// A COMPOUND.
    Compound(Request),
    /// Something that is answered with these bytes, record mark included.
    Answer(Vec<u8>),
    /// A reply to a callback with this transaction id.
    CallbackReply(u32, Bytes),
    /// Nothing that can be answered: the connection is to be closed.
    Broken,
}

/// The credential that came last on a connection, already understood: clients send the same one again and again.
#[derive(Default)]
pub(super) struct LastCredential {
    known: Option<(Box<[u8]>, Principal)>,
}

/// Reads a record. `reply` is an empty buffer that an answer is built in.
pub(super) fn read(record: Bytes, connection: &Arc<Connection>, last: &mut LastCredential, reply: Vec<u8>) -> Incoming {
    let call = match Call::decode(&record) {
        Ok(call) => call,
        Err(CallError::NotACall(REPLY)) => {
            return record.first_chunk().map_or(Incoming::Broken, |xid| Incoming::CallbackReply(u32::from_be_bytes(*xid), record.clone()));
        }
        Err(error) => return error.reply().map_or(Incoming::Broken, |answer| Incoming::Answer(encode(&answer, reply))),
    };
    let xid = call.xid;
    let answer = |outcome, reply| Incoming::Answer(encode(&Reply::accepted(xid, outcome), reply));
    if call.program != PROGRAM {
        return answer(Accepted::ProgUnavail, reply);
    }
    if call.version != VERSION {
        return answer(Accepted::ProgMismatch { low: VERSION, high: VERSION }, reply);
    }
    // RFC 8881, section 16.1.1: NULL does nothing and asks for no credential.
    if call.procedure == 0 {
        return answer(Accepted::Success(&[]), reply);
    }
    if call.procedure != COMPOUND {
        return answer(Accepted::ProcUnavail, reply);
    }
    let (principal, flavour) = match authenticate(&call.cred, &call.verf, last) {
        Ok(who) => who,
        Err(stat) => return Incoming::Answer(encode(&Reply::denied(xid, Denied::AuthError(stat)), reply)),
    };
    let body = record.slice(record.len() - call.args.len()..);
    let reply = encode(&Reply::accepted(xid, Accepted::Success(&[])), reply);
    Incoming::Compound(Request {
        connection: connection.clone(),
        xid,
        principal,
        flavour,
        body,
        reply,
        spans_allowed: flavour.plain_data(),
    })
}

/// A call for us on a connection that we made to call a client: there is no program here.
pub(super) fn refuse(record: &[u8], reply: Vec<u8>) -> Option<Vec<u8>> {
    let refusal = match Call::decode(record) {
        Ok(call) => Reply::accepted(call.xid, Accepted::ProgUnavail),
        Err(error) => error.reply()?,
    };
    Some(encode(&refusal, reply))
}

fn authenticate(cred: &OpaqueAuth<'_>, verf: &OpaqueAuth<'_>, last: &mut LastCredential) -> Result<(Principal, Flavour), AuthStat> {
    match cred.flavor {
        Flavor::NONE => Ok((Principal::None, Flavour::None)),
        Flavor::SYS => {
            // RFC 5531, appendix A: the verifier that goes with AUTH_SYS is AUTH_NONE's.
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
        // RFC 5531, appendix A: we never gave a short form out.
        Flavor::SHORT => Err(AuthStat::REJECTED_CRED),
        _ => Err(AuthStat::BAD_CRED),
    }
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
    // A COMPOUND's results follow; then the mark is filled in once more.
    vouch_oncrpc::end_record(&mut bytes, start, 0);
    debug_assert!(!matches!(reply.body, ReplyBody::Accepted { outcome: Accepted::Success(results), .. } if !results.is_empty()));
    bytes
}

/// NFS (RFC 8881, section 16).
const PROGRAM: u32 = 100_003;
const VERSION: u32 = 4;
const COMPOUND: u32 = 1;
/// Message type of a reply (RFC 5531, section 9).
const REPLY: u32 = 1;

#[cfg(test)]
mod tests;
