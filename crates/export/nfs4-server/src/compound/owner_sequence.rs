//! Order of calls of 4.0 open and lock owners (RFC 7530 §9.1.7).

use std::borrow::Cow;

use vouch_nfs4::op::Op;
use vouch_nfs4::{OwnerSeq, Stateid, Status};

use crate::OpenHandle;
use crate::compound::context::CompoundContext;
use crate::error::{OpError, OpResult};
use crate::files::file_ref::Object;
use crate::state::{OwnerReply, OwnerTurn, State, internal_owner_name};

pub(crate) fn in_turn(
    context: &mut CompoundContext<'_>,
    turn: impl FnOnce(&mut State<OpenHandle>) -> Result<OwnerTurn, Status>,
    call: impl FnOnce(&mut CompoundContext<'_>) -> OpResult,
) -> OpResult {
    if context.origin.minor > 0 {
        return call(context);
    }
    let token = match context.call.owner.take() {
        Some(token) => token,
        None => match context.state(turn)? {
            OwnerTurn::New(token) => token,
            OwnerTurn::Replay(reply) => return replay(context, &reply),
        },
    };
    // If the call panics, the token still releases the owner.
    context.call.owner = Some(token);
    let outcome = call(context);
    let status = match outcome {
        Ok(()) => Status::OK,
        Err(stop @ (OpError::WouldBlock | OpError::NamesWouldBlock | OpError::TurnOver)) => {
            return Err(stop);
        }
        Err(OpError::Encoded(status)) => status,
        Err(OpError::Status(status)) => context.fail(status),
        Err(OpError::Fault(status, source)) => {
            context.server.note_error(context.call, None, status, &source);
            context.fail(status)
        }
    };
    let bytes = context.out.as_bytes()[context.result.at..].to_vec();
    let file = match &context.current.object {
        Some(Object::File(file)) if context.result.op == Op::OPEN && status.is_ok() => {
            Some(file.key())
        }
        _ => None,
    };
    let reply = OwnerReply { op: context.result.op.0, bytes, file };
    context.call.owner = None;
    context.state(|state| state.owner_done(&token, status, reply));
    if status.is_ok() { Ok(()) } else { Err(OpError::Encoded(status)) }
}

/// The 4.0 key contains the principal: no other principal uses the owner's sequence.
pub(crate) fn owner_key<'a>(context: &CompoundContext<'_>, name: &'a [u8]) -> Cow<'a, [u8]> {
    if context.origin.minor > 0 {
        name.into()
    } else {
        internal_owner_name(name, context.proven().as_ref()).into()
    }
}

/// Only principals that may act on the stateid get a turn.
pub(crate) fn in_turn_by_stateid(
    context: &CompoundContext<'_>,
    stateid: Stateid,
    seq: OwnerSeq,
) -> impl FnOnce(&mut State<OpenHandle>) -> Result<OwnerTurn, Status> + use<> {
    let (caller, now, op) = (context.proven(), context.now.mono_ms, context.result.op);
    move |state| {
        // Clients advance their number after ACCESS. After BAD_STATEID they keep it and start
        // recovery, except in CLOSE and LOCKU (§9.1.7).
        let gives_back = op == Op::CLOSE || op == Op::LOCKU;
        state
            .authorize_v40_stateid(&stateid, caller.as_ref(), now)
            .map_err(|status| if gives_back { Status::BAD_STATEID } else { status })?;
        state.owner_turn_by_state(&stateid, seq, now)
    }
}

/// §9.1.8.
fn replay(context: &mut CompoundContext<'_>, reply: &OwnerReply) -> OpResult {
    if reply.op != context.result.op.0 || reply.bytes.len() < 8 {
        return Err(Status::BAD_SEQID.into());
    }
    if let Some(key) = reply.file {
        let grant = context.grant(key.export)?;
        context.set_current(Object::File(crate::files::file_ref::FileRef::new(grant, key.file)));
    }
    context.out.raw(&reply.bytes);
    let word = |at: usize| {
        u32::from_be_bytes([
            reply.bytes[at],
            reply.bytes[at + 1],
            reply.bytes[at + 2],
            reply.bytes[at + 3],
        ])
    };
    debug_assert_eq!(word(0), context.result.op.0, "a result begins with its operation");
    match Status(word(4)) {
        Status::OK => Ok(()),
        status => Err(OpError::Encoded(status)),
    }
}
