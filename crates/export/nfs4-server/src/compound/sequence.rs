//! Exactly-once execution by slots (RFC 8881 §2.10.6) or the 4.0 reply cache.

use vouch_nfs4::Status;
use vouch_nfs4::op::{Results, SequenceArgs, SequenceOk};

use crate::compound::context::{CallState, CompoundContext};
use crate::compound::reply_cache::{KnownCall, ReplyKey};
use crate::error::OpError;
use crate::state::{SequenceCall, Sequenced, Turn};
use crate::{Server, compound::fingerprint};

pub(crate) struct SequenceInput<'a> {
    pub(crate) args: &'a SequenceArgs,
    pub(crate) body_len: usize,
    pub(crate) rest: &'a [u8],
    pub(crate) operations: u32,
}

/// The call runs once: a retry finds its reply.
#[derive(Default)]
pub(crate) enum ExactlyOnce {
    #[default]
    Unguarded,
    Slot(Turn),
    /// Key in the 4.0 reply cache, before the first change and after.
    Unchanged(ReplyKey),
    Changing(ReplyKey),
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
        connection: context.origin.connection.id(),
        address: context.origin.connection.peer().ip(),
        request_len: input.body_len + CALL_HEADER_LEN,
        operations: input.operations,
        fingerprint: fingerprint::of(
            &context.origin.principal,
            context.origin.flavour,
            input.operations,
            input.rest,
        ),
    };
    let now = context.now.mono_ms;
    match context.state(|state| state.sequence(&call, now))? {
        Sequenced::New(turn) => {
            // A client may continue its session over a new connection.
            if context.origin.connection.client_name().is_none() {
                let name = context.state(|state| state.name_of(turn.client));
                name.into_iter()
                    .for_each(|name| context.origin.connection.set_client_name(|| name));
            }
            write(context, turn.ok);
            let tail_len = context.space.tail_len;
            let limit = |len: u32| (RECORD_MARK_LEN + len as usize).saturating_sub(tail_len);
            let whole = limit(turn.response_len_max);
            let kept = limit(turn.response_cached_len_max);
            (context.space.end_max, context.space.end_status) =
                match turn.cache_this && kept < whole {
                    true => (kept, Status::REP_TOO_BIG_TO_CACHE),
                    false => (whole, Status::REP_TOO_BIG),
                };
            context.space.spans_allowed &= !turn.cache_this;
            context.exactly_once = ExactlyOnce::Slot(turn);
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
    let now = call.now.mono_ms;
    match std::mem::take(&mut call.exactly_once) {
        ExactlyOnce::Slot(turn) => {
            let plain = !call.space.has_spans();
            let kept = plain && (turn.cache_this || results.len() <= KEPT_LEN_MAX);
            server.with_state(&mut call.effects, now, |state| {
                state.finish(&turn, kept.then_some(results), now)
            });
        }
        ExactlyOnce::Changing(key) => {
            server.reply_cache().answered(key, &call.origin.connection, results, now)
        }
        ExactlyOnce::Unguarded | ExactlyOnce::Unchanged(_) => {}
    }
}

pub(crate) enum Duplicate {
    No,
    InProgress,
    Answered(Vec<u8>),
}

pub(crate) fn duplicate(server: &Server, call: &mut CallState, body: &[u8]) -> Duplicate {
    let digest = fingerprint::of(&call.origin.principal, call.origin.flavour, 0, body);
    let key = ReplyKey {
        peer: call.origin.connection.peer().ip(),
        xid: call.origin.xid,
        digest,
        len: body.len(),
    };
    match server.reply_cache().find(&key, &call.origin.connection) {
        Some(KnownCall::Answered(reply)) => Duplicate::Answered(reply),
        Some(KnownCall::InProgress) => Duplicate::InProgress,
        None => {
            call.exactly_once = ExactlyOnce::Unchanged(key);
            Duplicate::No
        }
    }
}

pub(crate) fn begin_change(server: &Server, call: &mut CallState) {
    if let ExactlyOnce::Unchanged(key) = call.exactly_once {
        server.reply_cache().begin(key, &call.origin.connection, call.now.mono_ms);
        call.exactly_once = ExactlyOnce::Changing(key);
    }
}
