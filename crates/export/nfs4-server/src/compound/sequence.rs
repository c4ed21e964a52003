//! Exactly-once execution by slots (RFC 8881 §2.10.6) or the 4.0 reply cache.

use vouch_nfs4::Status;
use vouch_nfs4::op::{Results, SequenceArgs, SequenceOk};

use crate::compound::context::{CallState, CompoundContext, Running};
use crate::compound::reply_cache::{KnownCall, ReplyKey};
use crate::error::OpError;
use crate::state::{SequenceCall, Sequenced};
use crate::{Server, compound::fingerprint};

pub(crate) struct SequenceInput<'a> {
    pub(crate) args: &'a SequenceArgs,
    pub(crate) body_len: usize,
    pub(crate) rest: &'a [u8],
    pub(crate) operations: u32,
}

pub(crate) enum Sequence {
    Go,
    Answered(Vec<u8>),
    Uncached,
}

/// Shorter replies are cached without a request.
const KEPT_LEN_MAX: usize = 256;
/// A typical AUTH_SYS header, which counts toward the request's length.
const CALL_HEADER_LEN: usize = 40;
const RECORD_MARK_LEN: usize = vouch_oncrpc::RECORD_MARK_LEN;

pub(crate) fn sequence(
    context: &mut CompoundContext<'_>,
    input: &SequenceInput<'_>,
) -> Result<Sequence, OpError> {
    let call = SequenceCall {
        args: input.args,
        connection: context.connection.id(),
        address: context.connection.peer().ip(),
        request_len: input.body_len + CALL_HEADER_LEN,
        operations: input.operations,
        fingerprint: fingerprint::of(
            &context.principal,
            context.flavour,
            input.operations,
            input.rest,
        ),
    };
    let now = context.now.mono_ms;
    match context.state(|state| state.sequence(&call, now))? {
        Sequenced::New(turn) => {
            // A client may continue its session over a new connection.
            if context.connection.client_name().is_none() {
                let name = context.state(|state| state.name_of(turn.client));
                name.into_iter().for_each(|name| context.connection.set_client_name(|| name));
            }
            write(context, turn.ok);
            let tail_len = context.call.tail_len;
            let limit = |len: u32| (RECORD_MARK_LEN + len as usize).saturating_sub(tail_len);
            let whole = limit(turn.response_len_max);
            let kept = limit(turn.response_cached_len_max);
            (context.call.end_max, context.call.end_status) = match turn.cache_this && kept < whole
            {
                true => (kept, Status::REP_TOO_BIG_TO_CACHE),
                false => (whole, Status::REP_TOO_BIG),
            };
            context.call.spans_allowed &= !turn.cache_this;
            context.call.session = Some(Running { turn });
            Ok(Sequence::Go)
        }
        Sequenced::Replay(reply) => Ok(Sequence::Answered(reply)),
        Sequenced::Uncached(ok) => {
            write(context, ok);
            Ok(Sequence::Uncached)
        }
    }
}

fn write(context: &mut CompoundContext<'_>, ok: SequenceOk) {
    Results::Sequence(Ok(ok)).encode(context.out);
}

pub(crate) fn finish(server: &Server, call: &mut CallState, results: &[u8]) {
    if let Some(running) = call.session.take() {
        let plain = call.spans.is_empty();
        let kept = plain && (running.turn.cache_this || results.len() <= KEPT_LEN_MAX);
        let now = call.now.mono_ms;
        server.with_state(&mut call.effects, now, |state| {
            state.finish(&running.turn, kept.then_some(results), now)
        });
    }
    if let Some(key) = call.replay.take() {
        server.reply_cache().answered(key, &call.connection, results, call.now.mono_ms);
    }
}

pub(crate) enum Duplicate {
    No,
    InProgress,
    Answered(Vec<u8>),
}

pub(crate) fn duplicate(server: &Server, call: &mut CallState, body: &[u8]) -> Duplicate {
    let digest = fingerprint::of(&call.principal, call.flavour, 0, body);
    let key =
        ReplyKey { peer: call.connection.peer().ip(), xid: call.xid, digest, len: body.len() };
    match server.reply_cache().find(&key, &call.connection) {
        Some(KnownCall::Answered(reply)) => Duplicate::Answered(reply),
        Some(KnownCall::InProgress) => Duplicate::InProgress,
        None => {
            call.candidate = Some(key);
            Duplicate::No
        }
    }
}

pub(crate) fn begin_change(server: &Server, call: &mut CallState) {
    if let Some(key) = call.candidate.take() {
        server.reply_cache().begin(key, &call.connection, call.now.mono_ms);
        call.replay = Some(key);
    }
}
