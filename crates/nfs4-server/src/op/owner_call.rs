//! Calls of open owners and lock owners of 4.0, which have numbers (RFC 7530, section 9.1.7): each
//! is done once, and the last can be answered again.

use std::borrow::Cow;

use vouch_nfs4::op::Op;
use vouch_nfs4::{OwnerSeq, Stateid, Status};

use crate::OpenHandle;
use crate::state::{OwnerReply, OwnerTurn, State, known_as};
use crate::stop::{Outcome, Stop};
use crate::walk::{Object, Walk};

/// Does `call` in the owner's turn. In 4.1 there are no turns: sessions have them.
pub(crate) fn in_turn(
    walk: &mut Walk<'_>,
    turn: impl FnOnce(&mut State<OpenHandle>) -> Result<OwnerTurn, Status>,
    call: impl FnOnce(&mut Walk<'_>) -> Outcome,
) -> Outcome {
    if walk.minor > 0 {
        return call(walk);
    }
    let token = match walk.core.owner.take() {
        // Gone on with after a stop.
        Some(token) => token,
        None => match walk.state(turn)? {
            OwnerTurn::New(token) => token,
            OwnerTurn::Replay(reply) => return replay(walk, &reply),
        },
    };
    // Kept where it is found if the call panics: the owner's next call would wait for it for ever.
    walk.core.owner = Some(token);
    let outcome = call(walk);
    let status = match outcome {
        Ok(()) => Status::OK,
        Err(Stop::Blocked) => return Err(Stop::Blocked),
        Err(Stop::Written(status)) => status,
        Err(Stop::Status(status)) => walk.fail(status),
        Err(Stop::Fault(status, source)) => {
            walk.server.note_error(walk.core, None, status, &source);
            walk.fail(status)
        }
    };
    let bytes = walk.out.as_bytes()[walk.result_at..].to_vec();
    let file = match &walk.current {
        Some(Object::File(file)) if Op(walk.op) == Op::OPEN && status.is_ok() => Some(file.key()),
        _ => None,
    };
    let reply = OwnerReply { op: walk.op, bytes, file };
    walk.core.owner = None;
    walk.state(|state| state.owner_done(&token, status, reply));
    if status.is_ok() { Ok(()) } else { Err(Stop::Written(status)) }
}

/// Under which name an owner that a call names is known: in 4.0 it is its principal's, so that
/// nobody else uses up its numbers or is told its last result.
pub(crate) fn known_owner<'a>(walk: &Walk<'_>, name: &'a [u8]) -> Cow<'a, [u8]> {
    if walk.minor > 0 { name.into() } else { known_as(name, walk.proven().as_ref()).into() }
}

/// The turn of the owner of what a stateid names, for those who may act on that: nobody else uses
/// up its numbers or is told its last result.
pub(crate) fn by_state(
    walk: &Walk<'_>,
    stateid: Stateid,
    seq: OwnerSeq,
) -> impl FnOnce(&mut State<OpenHandle>) -> Result<OwnerTurn, Status> + use<> {
    let (caller, now, op) = (walk.proven(), walk.now.mono_ms, Op(walk.op));
    move |state| {
        // After ACCESS clients move their number on (section 9.1.7), after BAD_STATEID not: who closes
        // under another principal of his own stays in step with what he opened before. Where
        // more is asked than to give something back, BAD_STATEID would set off recovery.
        let gives_back = op == Op::CLOSE || op == Op::LOCKU;
        state.heard_by(&stateid, caller.as_ref(), now).map_err(|status| if gives_back { Status::BAD_STATEID } else { status })?;
        state.owner_turn_by_state(&stateid, seq, now)
    }
}

/// Section 9.1.8: the last call again is answered as it was; one that is another operation is none
/// of it.
fn replay(walk: &mut Walk<'_>, reply: &OwnerReply) -> Outcome {
    if reply.op != walk.op || reply.bytes.len() < 8 {
        return Err(Status::BAD_SEQID.into());
    }
    if let Some(key) = reply.file {
        let grant = walk.grant(key.export)?;
        walk.set_current(Object::File(crate::walk::FileRef { grant, id: key.file }));
    }
    walk.out.raw(&reply.bytes);
    let word = |at: usize| u32::from_be_bytes([reply.bytes[at], reply.bytes[at + 1], reply.bytes[at + 2], reply.bytes[at + 3]]);
    debug_assert_eq!(word(0), walk.op, "a result begins with its operation");
    match Status(word(4)) {
        Status::OK => Ok(()),
        status => Err(Stop::Written(status)),
    }
}
