//! What makes a COMPOUND happen once: the slot of a session (RFC 8881, section 2.10.6), and for 4.0
//! the cache of replies to calls that change something.

use vouch_nfs4::Status;
use vouch_nfs4::op::{Results, SequenceArgs, SequenceOk};

use crate::replies::{Known, ReplyKey};
use crate::state::{SequenceCall, Sequenced, Turn};
use crate::stop::Stop;
use crate::walk::{Core, Walk};
use crate::{Server, fingerprint};

/// The session of a compound that is being executed.
pub(crate) struct Running {
    pub(crate) turn: Turn,
}

/// A compound that begins with SEQUENCE.
pub(crate) struct Opening<'a> {
    pub(crate) args: &'a SequenceArgs,
    pub(crate) body_len: usize,
    /// What follows SEQUENCE.
    pub(crate) rest: &'a [u8],
    pub(crate) operations: u32,
}

/// What SEQUENCE came to.
pub(crate) enum Sequence {
    /// Go on; its result is written.
    Go,
    /// A retry; these are the results.
    Answered(Vec<u8>),
    /// A retry whose results were not kept; SEQUENCE's own is written.
    Uncached,
}

/// Replies up to this length are kept whether the client asks for it or not: it costs next to
/// nothing.
const KEPT_LEN_MAX: usize = 256;
/// RPC header of a call as clients send it under AUTH_SYS, which is part of a request's length.
const CALL_HEADER_LEN: usize = 40;
const RECORD_MARK_LEN: usize = vouch_oncrpc::RECORD_MARK_LEN;

pub(crate) fn sequence(walk: &mut Walk<'_>, opening: &Opening<'_>) -> Result<Sequence, Stop> {
    let call = SequenceCall {
        args: opening.args,
        connection: walk.connection.id(),
        address: walk.connection.peer().ip(),
        request_len: opening.body_len + CALL_HEADER_LEN,
        operations: opening.operations,
        fingerprint: fingerprint::of(&walk.principal, walk.flavour, opening.operations, opening.rest),
    };
    let now = walk.now.mono_ms;
    match walk.state(|state| state.sequence(&call, now))? {
        Sequenced::New(turn) => {
            write(walk, turn.ok);
            // The buffer begins with the record mark, which is no part of the message.
            let tail_len = walk.core.tail_len;
            let limit = |len: u32| (RECORD_MARK_LEN + len as usize).saturating_sub(tail_len);
            let whole = limit(turn.response_len_max);
            let kept = limit(turn.response_cached_len_max);
            (walk.core.end_max, walk.core.end_status) = match turn.cache_this && kept < whole {
                true => (kept, Status::REP_TOO_BIG_TO_CACHE),
                false => (whole, Status::REP_TOO_BIG),
            };
            walk.core.spans_allowed &= !turn.cache_this;
            walk.core.session = Some(Running { turn });
            Ok(Sequence::Go)
        }
        Sequenced::Replay(reply) => Ok(Sequence::Answered(reply)),
        Sequenced::Uncached(ok) => {
            write(walk, ok);
            Ok(Sequence::Uncached)
        }
    }
}

fn write(walk: &mut Walk<'_>, ok: SequenceOk) {
    Results::Sequence(Ok(ok)).encode(walk.out);
}

/// The compound is done: its results are kept for a retry.
pub(crate) fn finish(server: &Server, core: &mut Core, results: &[u8]) {
    if let Some(running) = core.session.take() {
        let plain = core.spans.is_empty();
        let kept = plain && (running.turn.cache_this || results.len() <= KEPT_LEN_MAX);
        let now = core.now.mono_ms;
        server.with_state(&mut core.effects, now, |state| state.finish(&running.turn, kept.then_some(results), now));
    }
    if let Some(key) = core.replay.take() {
        server.replies().answered(key, &core.connection, results, core.now.mono_ms);
    }
}

/// Whether a call of 4.0 has come before.
pub(crate) enum Duplicate {
    No,
    UnderWay,
    Answered(Vec<u8>),
}

pub(crate) fn duplicate(server: &Server, core: &mut Core, body: &[u8]) -> Duplicate {
    let digest = fingerprint::of(&core.principal, core.flavour, 0, body);
    let key = ReplyKey { peer: core.connection.peer().ip(), xid: core.xid, digest, len: body.len() };
    match server.replies().look(&key, &core.connection) {
        Some(Known::Answered(reply)) => Duplicate::Answered(reply),
        Some(Known::UnderWay) => Duplicate::UnderWay,
        None => {
            core.candidate = Some(key);
            Duplicate::No
        }
    }
}

/// A call of 4.0 is about to change something: a duplicate of it must not do so again.
pub(crate) fn begin_change(server: &Server, core: &mut Core) {
    if let Some(key) = core.candidate.take() {
        server.replies().begin(key, &core.connection, core.now.mono_ms);
        core.replay = Some(key);
    }
}

impl Core {
    /// The turn of the session, in 4.1.
    pub(crate) fn turn(&self) -> Result<Turn, Status> {
        self.session.as_ref().map(|running| running.turn).ok_or(Status::OP_NOT_IN_SESSION)
    }
}
