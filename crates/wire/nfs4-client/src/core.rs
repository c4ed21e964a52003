//! Slots, transaction ids and replies. Does no I/O and, in the steady state, no allocation.

use std::ops::Range;
use std::sync::Arc;

use vouch_nfs4::op::{Args, CreateSessionOk, Op, Results, SequenceArgs, SequenceOk};
use vouch_nfs4::{
    CompoundHead, PROC_COMPOUND, PROGRAM, ReplyHead, SessionId, SlotId, SlotSeq, Status, VERSION,
};
use vouch_oncrpc::{
    Accepted, Denied, RECORD_MARK_LEN, RPC_VERSION, Reply as RpcReply, ReplyBody as RpcBody,
    begin_record, end_record,
};
use vouch_xdr::{Reader, Writer};

use crate::slots::{SLOTS_MAX, Slots};
use crate::{CallTag, CallbackSecurity, Error, Opener, OutgoingCall, Protection, ReplyBody};

mod previous_context;
mod reply_batch;

use previous_context::PreviousContext;

/// Whether a call uses a session slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// Starts with SEQUENCE on a slot.
    Session {
        /// The server caches the reply for retries.
        cache: bool,
    },
    /// All 4.0 calls, and calls that manage sessions.
    Sessionless,
}

/// Append operations, then call [`Core::end`].
#[derive(Debug)]
#[must_use = "a call must be ended with `Core::end`"]
pub struct CallBuilder {
    at: usize,
    record_start: usize,
    body_start: usize,
    count_at: usize,
    count: u32,
}

impl CallBuilder {
    /// Appends an operation.
    pub fn op(&mut self, w: &mut Writer, args: &Args<'_>) {
        args.encode(w);
        self.count += 1;
    }

    /// Appends `count` encoded operations.
    pub fn raw(&mut self, w: &mut Writer, operations: &[u8], count: u32) {
        w.raw(operations);
        self.count += count;
    }
}

#[derive(Debug)]
pub(crate) struct Unprotected {
    pub(crate) tag: CallTag,
    pub(crate) bytes: Range<usize>,
}

/// The end of a call.
#[derive(Debug)]
pub struct Completion<'a> {
    /// From [`Core::begin`].
    pub token: u64,
    /// The reply, or why there is none.
    pub outcome: Result<ReplyBody<'a>, Error>,
    /// The number of the call was wrong. The slot is now right, and the call can be submitted anew.
    pub is_repeatable: bool,
}

impl Completion<'_> {
    /// DELAY for SEQUENCE: an earlier copy of the call may be executing. The call stays in flight:
    /// no other may use its slot, and [`Core::begin_again`] repeats it (RFC 8881 §15.1.1.3).
    pub fn is_delayed(&self) -> bool {
        self.outcome.as_ref().is_err_and(Error::is_delayed_sequence)
    }
}

#[derive(Debug, Clone, Copy)]
struct InFlightCall {
    xid: u32,
    tag: CallTag,
    token: u64,
    count: u32,
    kind: CallKind,
    is_again: bool,
    context_generation: u32,
}

impl InFlightCall {
    /// Nothing was executed, or the caller permits execution twice.
    fn is_repeatable(&self) -> bool {
        !self.is_again || self.kind == CallKind::Session { cache: false }
    }
}

/// Of a READ or WRITE: headers, credential, handle. Linux leaves 1,044 bytes beside the data.
const MESSAGE_HEAD_LEN: usize = 1000;

const CALL_PLACES: usize = 2 * SLOTS_MAX;
const CALL_PLACE_BITS: u32 = CALL_PLACES.trailing_zeros();

/// State of a client's calls over any number of connections.
pub struct Core {
    minor: u32,
    protection: Box<dyn Protection>,
    context_generation: u32,
    previous_context: Option<PreviousContext>,
    xid_high: u32,
    session: Option<SessionId>,
    is_state_protected: bool,
    request_len_max: usize,
    response_len_max: usize,
    operations_max: u32,
    slots: Slots,
    calls: Vec<Option<InFlightCall>>,
    in_flight: usize,
    next_sessionless: usize,
}

impl Core {
    /// `seed` makes transaction ids differ from those of an earlier instance.
    pub fn new(minor: u32, protection: Box<dyn Protection>, seed: u32) -> Self {
        Self {
            minor,
            protection,
            context_generation: 0,
            previous_context: None,
            xid_high: seed,
            session: None,
            is_state_protected: false,
            request_len_max: 0,
            response_len_max: 0,
            operations_max: 0,
            slots: Slots::new(1),
            calls: vec![None; CALL_PLACES],
            in_flight: 0,
            next_sessionless: 0,
        }
    }

    /// Minor version.
    pub const fn minor(&self) -> u32 {
        self.minor
    }

    /// The session, if one is bound (4.1).
    pub const fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Whether the session has state protection by machine credentials.
    pub const fn is_protected(&self) -> bool {
        self.session.is_some() && self.is_state_protected
    }

    pub(crate) const fn data_len_max(&self) -> usize {
        if self.session.is_none() {
            return usize::MAX;
        }
        let (request, response) = (self.request_len_max, self.response_len_max);
        let message = if request < response { request } else { response };
        message.saturating_sub(MESSAGE_HEAD_LEN)
    }

    pub(crate) const fn set_state_protected(&mut self, is_protected: bool) {
        self.is_state_protected = is_protected;
    }

    pub(crate) fn set_session(&mut self, session: &CreateSessionOk) -> Vec<u64> {
        let lost = self.clear_session();
        self.session = Some(session.session);
        self.request_len_max = session.fore.request_len_max as usize;
        self.response_len_max = session.fore.response_len_max as usize;
        self.operations_max = session.fore.operations_max;
        self.slots = Slots::new(session.fore.requests_max as usize);
        lost
    }

    pub(crate) fn clear_session(&mut self) -> Vec<u64> {
        self.session = None;
        self.slots = Slots::new(1);
        (0..SLOTS_MAX).filter_map(|at| self.remove_call(at)).map(|call| call.token).collect()
    }

    /// Number of calls that can begin now.
    pub fn available(&self) -> usize {
        let places = match self.session {
            Some(_) => self.slots.available(),
            None => SLOTS_MAX,
        };
        places.min(self.outstanding_max().saturating_sub(self.in_flight))
    }

    fn outstanding_max(&self) -> usize {
        let max = self.protection.outstanding_max();
        max.saturating_sub(usize::from(self.minor > 0)).max(1)
    }

    /// `None` if no slot is free or the protection's window is full. `w` is then unchanged.
    pub fn begin(
        &mut self,
        token: u64,
        kind: CallKind,
        w: &mut Writer,
    ) -> Result<Option<CallBuilder>, Error> {
        self.begin_as(token, kind, None, w)
    }

    /// With another AUTH_SYS credential, see [`Protection::begin_as`].
    pub(crate) fn begin_as(
        &mut self,
        token: u64,
        kind: CallKind,
        caller: Option<&[u8]>,
        w: &mut Writer,
    ) -> Result<Option<CallBuilder>, Error> {
        if (kind != CallKind::Sessionless || self.minor == 0)
            && self.in_flight >= self.outstanding_max()
        {
            return Ok(None);
        }
        let (at, sequence) = match kind {
            CallKind::Session { cache } => {
                let session = self.session.ok_or(Error::Lost)?;
                let Some((at, seq)) = self.slots.acquire() else { return Ok(None) };
                (at, Some(self.sequence(session, at, seq, cache)))
            }
            CallKind::Sessionless => match self.free_sessionless_place() {
                Some(at) => (at, None),
                None => return Ok(None),
            },
        };
        let call = self.write_head((at, token, kind), sequence, None, caller, w);
        if call.is_err() && sequence.is_some() {
            self.slots.release(at, false);
        }
        call.map(Some)
    }

    /// Begins a call again on another connection with the same slot, sequence number and
    /// operations: the server replies from its cache if it has executed the call (RFC 8881
    /// §2.10.6.2). A call without a slot keeps its transaction id, by which 4.0 servers know it
    /// (RFC 7530 §3.1.1). `None` if `token` is not in flight. O(slots).
    pub fn begin_again(
        &mut self,
        token: u64,
        w: &mut Writer,
    ) -> Result<Option<CallBuilder>, Error> {
        self.begin_again_as(token, None, w)
    }

    pub(crate) fn begin_again_as(
        &mut self,
        token: u64,
        caller: Option<&[u8]>,
        w: &mut Writer,
    ) -> Result<Option<CallBuilder>, Error> {
        let found =
            self.calls.iter().enumerate().find_map(|(at, call)| {
                call.filter(|call| call.token == token).map(|call| (at, call))
            });
        let Some((at, InFlightCall { kind, xid, .. })) = found else { return Ok(None) };
        let mut known_xid = None;
        let sequence = match kind {
            CallKind::Session { cache } => {
                let session = self.session.ok_or(Error::Lost)?;
                Some(self.sequence(session, at, self.slots.seq_in_flight(at), cache))
            }
            CallKind::Sessionless => {
                known_xid = Some(xid);
                None
            }
        };
        let call = self.write_head((at, token, kind), sequence, known_xid, caller, w)?;
        if let Some(call) = &mut self.calls[at] {
            call.is_again = true;
        }
        Ok(Some(call))
    }

    /// If the protection fails, or the call exceeds the session's limits, it is removed from `w`.
    pub fn end(&mut self, call: CallBuilder, w: &mut Writer) -> Result<(), Error> {
        let start = CallBuilder { ..call };
        let Some(Unprotected { tag, bytes }) = self.end_unprotected(call, w)? else {
            return Ok(());
        };
        let protected = self.protect(&mut [OutgoingCall { tag, bytes: &mut w.bytes_mut()[bytes] }]);
        if protected.is_err() {
            self.cancel(&start, w);
        }
        protected
    }

    /// For [`Self::protect`] later. Returns the call's position if it needs protection.
    pub(crate) fn end_unprotected(
        &mut self,
        call: CallBuilder,
        w: &mut Writer,
    ) -> Result<Option<Unprotected>, Error> {
        let in_flight = self.calls[call.at].as_mut().expect("a call that was begun is in flight");
        in_flight.count = call.count;
        w.set_u32(call.count_at, call.count);
        let (tag, kind) = (in_flight.tag, in_flight.kind);
        self.protection.end(tag, w, call.body_start);
        let len = w.len() - call.record_start - RECORD_MARK_LEN;
        if kind != CallKind::Sessionless
            && (len > self.request_len_max || call.count > self.operations_max)
        {
            self.cancel(&call, w);
            return Err(Error::TooLarge);
        }
        end_record(w.bytes_mut(), call.record_start, 0);
        let bytes = call.record_start + RECORD_MARK_LEN..w.len();
        Ok(self.protection.protects().then_some(Unprotected { tag, bytes }))
    }

    /// After an error none of the calls may be sent.
    pub(crate) fn protect(&mut self, calls: &mut [OutgoingCall<'_>]) -> Result<(), Error> {
        Ok(self.protection.protect(calls)?)
    }

    /// Whether replies are verified by a MIC.
    pub fn has_integrity(&self) -> bool {
        self.protection.has_integrity()
    }

    /// Target length in bytes; zero if batches are no faster.
    pub(crate) fn batch_len(&self) -> usize {
        self.protection.batch_len()
    }

    /// Works without access to the core.
    pub(crate) fn opener(&self) -> Option<Arc<dyn Opener>> {
        self.protection.opener()
    }

    fn cancel(&mut self, call: &CallBuilder, w: &mut Writer) {
        w.truncate(call.record_start);
        if let Some(InFlightCall { kind: CallKind::Session { .. }, .. }) = self.remove_call(call.at)
        {
            self.slots.release(call.at, false);
        }
    }

    fn remove_call(&mut self, at: usize) -> Option<InFlightCall> {
        let call = self.calls[at].take()?;
        self.in_flight -= 1;
        self.note_call_end(&call);
        Some(call)
    }

    /// `None` if no call waits for the reply. After an error the connection is unusable.
    pub fn reply<'a>(
        &mut self,
        record: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<Option<Completion<'a>>, Error> {
        let reply = RpcReply::decode(record)?;
        let Some((at, call)) = self.find_call(reply.xid) else { return Ok(None) };
        let opened = match reply.body {
            RpcBody::Accepted { verf, outcome: Accepted::Success(body) } => {
                self.protection.open(call.tag, verf, body, scratch).map_err(Error::from)
            }
            RpcBody::Accepted { verf, outcome } => match self.protection.verify(call.tag, verf) {
                Ok(()) => Err(Error::NotAccepted(not_accepted(&outcome))),
                Err(error) => Err(error.into()),
            },
            RpcBody::Denied(denied) => Err(denial_error(denied)),
        };
        self.complete(at, call, opened).map(Some)
    }

    fn find_call(&self, xid: u32) -> Option<(usize, InFlightCall)> {
        let at = (xid as usize) & (CALL_PLACES - 1);
        self.calls[at].filter(|call| call.xid == xid).map(|call| (at, call))
    }

    fn complete<'a>(
        &mut self,
        at: usize,
        call: InFlightCall,
        opened: Result<&'a [u8], Error>,
    ) -> Result<Completion<'a>, Error> {
        // The reply may be forged, so the call keeps waiting.
        if let Err(error @ Error::Protection(_)) = opened {
            return Err(error);
        }
        let outcome = opened.and_then(|body| read_head(body, &call));
        let (outcome, is_repeatable) = match call.kind {
            CallKind::Sessionless => (outcome, false),
            CallKind::Session { .. } => self.accept_sequence(at, &call, outcome),
        };
        let completion = Completion { token: call.token, outcome, is_repeatable };
        if !completion.is_delayed() {
            self.remove_call(at);
        }
        Ok(completion)
    }

    /// For authenticated callbacks.
    pub fn callback_security(&self) -> Option<CallbackSecurity> {
        self.protection.callback_security()
    }

    pub(crate) fn set_target_slot(&mut self, target: SlotId) {
        self.slots.set_target(target);
    }

    fn sequence(&self, session: SessionId, at: usize, seq: SlotSeq, cache: bool) -> SequenceArgs {
        SequenceArgs {
            session,
            seq,
            slot: SlotId(at as u32),
            highest_slot: self.slots.highest(),
            cache_this: cache,
        }
    }

    fn free_sessionless_place(&mut self) -> Option<usize> {
        let at = (0..SLOTS_MAX)
            .map(|step| SLOTS_MAX + (self.next_sessionless + step) % SLOTS_MAX)
            .find(|&at| self.calls[at].is_none())?;
        self.next_sessionless = (at + 1) % SLOTS_MAX;
        Some(at)
    }

    /// Also registers the call in flight.
    fn write_head(
        &mut self,
        (at, token, kind): (usize, u64, CallKind),
        sequence: Option<SequenceArgs>,
        known_xid: Option<u32>,
        caller: Option<&[u8]>,
        w: &mut Writer,
    ) -> Result<CallBuilder, Error> {
        let xid = known_xid.unwrap_or_else(|| {
            self.xid_high = self.xid_high.wrapping_add(1);
            self.xid_high << CALL_PLACE_BITS | at as u32
        });
        let record_start = begin_record(w);
        let header_start = w.len();
        [xid, 0, RPC_VERSION, PROGRAM, VERSION, PROC_COMPOUND]
            .into_iter()
            .for_each(|word| w.u32(word));
        let tag = match self.protection.begin_as(caller, w, header_start) {
            Ok(tag) => tag,
            Err(error) => {
                w.truncate(record_start);
                return Err(error.into());
            }
        };
        let body_start = w.len();
        let count_at = CompoundHead { tag: b"", minor: self.minor, count: 0 }.encode(w);
        let mut call = CallBuilder { at, record_start, body_start, count_at, count: 0 };
        if let Some(args) = sequence {
            call.op(w, &Args::Sequence(args));
        }
        self.remove_call(at);
        self.calls[at] = Some(InFlightCall {
            xid,
            tag,
            token,
            count: 0,
            kind,
            is_again: false,
            context_generation: self.context_generation,
        });
        self.in_flight += 1;
        Ok(call)
    }

    /// RFC 8881 §2.10.6.1. The flag is [`Completion::is_repeatable`].
    fn accept_sequence<'a>(
        &mut self,
        at: usize,
        call: &InFlightCall,
        outcome: Result<ReplyBody<'a>, Error>,
    ) -> (Result<ReplyBody<'a>, Error>, bool) {
        let read = outcome.and_then(|mut body| match body.next_result()? {
            Results::Sequence(Ok(ok)) => Ok((body, ok)),
            Results::Sequence(Err(status)) => Err(Error::Refused { op: Op::SEQUENCE, status }),
            _ => Err(Error::Mismatch("expected the result of SEQUENCE")),
        });
        let Some(session) = self.session else { return (Err(Error::Lost), false) };
        let error = match read {
            Ok((body, ok)) => {
                let ours = ok.session == session
                    && ok.slot.0 as usize == at
                    && ok.seq == self.slots.seq_in_flight(at);
                self.slots.release(at, true);
                if !ours {
                    return (Err(Error::Mismatch("SEQUENCE result of another slot")), false);
                }
                self.slots.set_target(ok.target_highest_slot.min(ok.highest_slot));
                let is_repeatable =
                    body.status == Status::RETRY_UNCACHED_REP && call.is_repeatable();
                return (Ok(body.sequenced(ok)), is_repeatable);
            }
            Err(error) => error,
        };
        let is_repeatable = match &error {
            Error::Refused { op: Op::SEQUENCE, status: Status::DELAY } => false,
            Error::Refused { op: Op::SEQUENCE, status: Status::SEQ_FALSE_RETRY } => {
                self.slots.release(at, true);
                call.is_repeatable()
            }
            Error::Refused { op: Op::SEQUENCE, status: Status::SEQ_MISORDERED } => {
                self.slots.release(at, false);
                self.slots.step_back(at)
            }
            Error::Refused { .. } | Error::NotAccepted(_) | Error::Denied(_) => {
                self.slots.release(at, false);
                false
            }
            _ => {
                self.slots.release_in_doubt(at);
                false
            }
        };
        (Err(error), is_repeatable)
    }
}

fn read_head<'a>(body: &'a [u8], call: &InFlightCall) -> Result<ReplyBody<'a>, Error> {
    let mut r = Reader::new(body);
    let head = ReplyHead::decode(&mut r)?;
    match head.count > call.count {
        true => Err(Error::Mismatch("more results than operations")),
        false => Ok(ReplyBody::new(head.status, head.count, r)),
    }
}

/// A denial has no verifier (RFC 5531 §9), so it is not authenticated.
fn denial_error(denied: Denied) -> Error {
    match denied {
        Denied::AuthError(stat) => Error::Denied(stat),
        Denied::RpcMismatch { .. } => Error::NotAccepted("RPC version"),
    }
}

fn not_accepted(outcome: &Accepted<'_>) -> &'static str {
    match outcome {
        Accepted::Success(_) => "accepted",
        Accepted::ProgUnavail => "the server has no NFS program",
        Accepted::ProgMismatch { .. } => "the server does not support NFSv4",
        Accepted::ProcUnavail => "no such procedure",
        Accepted::GarbageArgs => "the server cannot decode the arguments",
        Accepted::SystemErr => "the server reported a system error",
    }
}

impl ReplyBody<'_> {
    const fn sequenced(mut self, ok: SequenceOk) -> Self {
        self.sequence = Some(ok);
        self
    }
}

#[cfg(test)]
mod tests;
