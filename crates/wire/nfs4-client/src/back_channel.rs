//! CB_COMPOUND and the slots of CB_SEQUENCE. A handler executes other operations. The slot's cache
//! answers a retry.

use vouch_nfs4::cb::{Args, CbSequenceArgs, CbSequenceOk, Op, Results};
use vouch_nfs4::{
    CALLBACK_VERSION, CallbackHead, PROC_COMPOUND, PROC_NULL, ReplyWriter, SessionId, SlotId,
    SlotSeq, Status,
};
use vouch_oncrpc::{Accepted, Call, Denied, Reply, begin_record, end_record, write_record};
use vouch_rpcsec_gss::{Envelope, GssCall, Wrap, wrap_many};
use vouch_xdr::{Reader, Writer};

use crate::CallbackSecurity;
use crate::callback_security::VerifiedCallback;

const OPERATIONS_MAX: u32 = 16;

/// Executes the operations of the server's callbacks.
pub trait CallbackHandler: Send {
    /// Must not block: long work starts in the background, and the result is OK.
    fn callback<'a>(&'a mut self, args: &Args<'_>) -> Results<'a>;
}

/// Answers NOTSUPP.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoCallbacks;

impl CallbackHandler for NoCallbacks {
    fn callback<'a>(&'a mut self, args: &Args<'_>) -> Results<'a> {
        Results::failure(args.op(), Status::NOTSUPP)
    }
}

impl<F: FnMut(&Args<'_>) -> Results<'static> + Send> CallbackHandler for F {
    fn callback<'a>(&'a mut self, args: &Args<'_>) -> Results<'a> {
        self(args)
    }
}

#[derive(Debug, Clone, Default)]
struct Slot {
    seq: SlotSeq,
    reply: Vec<u8>,
}

/// Also the client's end of a 4.0 callback connection.
#[derive(Debug)]
pub struct BackChannel {
    program: u32,
    minor: u32,
    session: Option<SessionId>,
    slots: Vec<Slot>,
    security: Option<CallbackSecurity>,
}

enum SequenceOutcome {
    New(CbSequenceOk, usize),
    Retry(usize),
    Refused(Status),
}

impl BackChannel {
    /// `program` and `minor`: of the callbacks.
    pub fn new(program: u32, minor: u32, slots: usize) -> Self {
        Self {
            program,
            minor,
            session: None,
            slots: vec![Slot::default(); slots.max(1)],
            security: None,
        }
    }

    /// Accepts only callbacks under this context, or unauthenticated ones with `None`.
    pub fn set_security(&mut self, security: Option<CallbackSecurity>) {
        self.security = security;
    }

    pub(crate) fn set_session(&mut self, session: SessionId) {
        self.session = Some(session);
        self.slots.fill(Slot::default());
    }

    /// Appends the reply record, or nothing if `record` contains no call.
    pub fn answer(&mut self, record: &[u8], handler: &mut dyn CallbackHandler, w: &mut Writer) {
        let call = match Call::decode(record) {
            Ok(call) => call,
            Err(error) => {
                if let Some(reply) = error.reply() {
                    write_reply(&reply, w);
                }
                return;
            }
        };
        let security = self.security.clone();
        let (context_call, args) =
            match security.as_ref().map(|security| security.verify(record, &call)) {
                None => (None, call.args.to_vec()),
                Some(VerifiedCallback::Call(context_call, args)) => (Some(context_call), args),
                Some(VerifiedCallback::Garbage(context_call)) => {
                    return write_protected(&context_call, Accepted::GarbageArgs, w, &[]);
                }
                Some(VerifiedCallback::Denied(stat)) => {
                    return write_reply(&Reply::denied(call.xid, Denied::AuthError(stat)), w);
                }
                Some(VerifiedCallback::Dropped) => return,
            };
        let refusal = match (call.program == self.program, call.version, call.procedure) {
            (false, _, _) => Some(Accepted::ProgUnavail),
            (_, version, _) if version != CALLBACK_VERSION => {
                Some(Accepted::ProgMismatch { low: CALLBACK_VERSION, high: CALLBACK_VERSION })
            }
            (_, _, PROC_NULL) => Some(Accepted::Success(&[])),
            (_, _, PROC_COMPOUND) => None,
            _ => Some(Accepted::ProcUnavail),
        };
        let mut results = Writer::new();
        let outcome = match refusal {
            Some(outcome) => outcome,
            None if self.compound(&args, handler, &mut results).is_some() => {
                Accepted::Success(results.as_bytes())
            }
            None => Accepted::GarbageArgs,
        };
        match (context_call, outcome) {
            (None, outcome) => write_reply(&Reply::accepted(call.xid, outcome), w),
            (Some(context_call), Accepted::Success(results)) => {
                write_protected(&context_call, Accepted::Success(&[]), w, results)
            }
            (Some(context_call), outcome) => write_protected(&context_call, outcome, w, &[]),
        }
    }

    fn compound(
        &mut self,
        args: &[u8],
        handler: &mut dyn CallbackHandler,
        w: &mut Writer,
    ) -> Option<()> {
        let mut r = Reader::new(args);
        let head = CallbackHead::decode(&mut r).ok()?;
        let body_start = w.len();
        let reply = ReplyWriter::begin(w, head.tag);
        let (mut status, mut count, mut slot) = (Status::OK, 0, None);
        if head.minor != self.minor {
            (status, count) = (Status::MINOR_VERS_MISMATCH, 0);
        } else {
            while count < head.count && status.is_ok() {
                count += 1;
                let results = match Args::decode(head.minor, &mut r) {
                    _ if count > OPERATIONS_MAX => {
                        Results::failure(Op::CB_SEQUENCE, Status::TOO_MANY_OPS)
                    }
                    Err(_) => Results::failure(Op::CB_SEQUENCE, Status::BADXDR),
                    Ok(Args::Illegal(_)) => Results::Illegal(Status::OP_ILLEGAL),
                    Ok(Args::Sequence(args)) => match self.sequence(&args, count == 1) {
                        SequenceOutcome::New(ok, at) => {
                            slot = Some(at);
                            Results::Sequence(Ok(ok))
                        }
                        SequenceOutcome::Retry(at) => {
                            w.truncate(body_start);
                            w.raw(&self.slots[at].reply);
                            return Some(());
                        }
                        SequenceOutcome::Refused(status) => Results::Sequence(Err(status)),
                    },
                    Ok(args) if self.minor > 0 && slot.is_none() => {
                        Results::failure(args.op(), Status::OP_NOT_IN_SESSION)
                    }
                    Ok(args) => handler.callback(&args),
                };
                status = results.status();
                results.encode(w);
            }
        }
        reply.finish(w, status, count);
        if let Some(at) = slot {
            self.slots[at].reply.clear();
            self.slots[at].reply.extend_from_slice(&w.as_bytes()[body_start..]);
        }
        Some(())
    }

    fn sequence(&mut self, args: &CbSequenceArgs, first: bool) -> SequenceOutcome {
        if !first {
            return SequenceOutcome::Refused(Status::SEQUENCE_POS);
        }
        if self.session != Some(args.session) {
            return SequenceOutcome::Refused(Status::BADSESSION);
        }
        let at = args.slot.0 as usize;
        let highest = SlotId(self.slots.len() as u32 - 1);
        let Some(slot) = self.slots.get_mut(at) else {
            return SequenceOutcome::Refused(Status::BADSLOT);
        };
        if args.seq == slot.seq && !slot.reply.is_empty() {
            return SequenceOutcome::Retry(at);
        }
        if args.seq != slot.seq.next() {
            return SequenceOutcome::Refused(Status::SEQ_MISORDERED);
        }
        slot.seq = args.seq;
        let ok = CbSequenceOk {
            session: args.session,
            seq: args.seq,
            slot: args.slot,
            highest_slot: highest,
            target_highest_slot: highest,
        };
        SequenceOutcome::New(ok, at)
    }
}

/// A message that the server sends of its own accord (RFC 5531 §9).
pub(crate) fn is_call(record: &[u8]) -> bool {
    record.get(4..8) == Some(&[0; 4])
}

fn write_protected(call: &GssCall, outcome: Accepted<'_>, w: &mut Writer, results: &[u8]) {
    let start = begin_record(w);
    let envelope = Envelope::begin(call, outcome, w);
    w.raw(results);
    let mut wraps = [Wrap::new(w.bytes_mut(), &envelope)];
    wrap_many(&mut wraps, &mut |bytes| getrandom::fill(bytes).is_ok());
    let [Wrap { done, .. }] = wraps;
    match done {
        true => end_record(w.bytes_mut(), start, 0),
        false => w.truncate(start),
    }
}

fn write_reply(reply: &Reply<'_>, w: &mut Writer) {
    write_record(w, |w| reply.encode(w));
}

#[cfg(test)]
mod tests {
    use super::*;
    use vouch_nfs4::{Filehandle, List, Stateid, cb::CbRecallArgs};
    use vouch_oncrpc::ReplyBody;

    const SESSION: SessionId = SessionId([3; 16]);

    fn call(seq: u32, slot: u32, session: SessionId, operations: &[Args<'_>]) -> Vec<u8> {
        let mut body = Writer::new();
        let sequence = CbSequenceArgs {
            session,
            seq: SlotSeq(seq),
            slot: SlotId(slot),
            highest_slot: SlotId(0),
            cache_this: true,
            referring: List::default(),
        };
        CallbackHead { tag: b"t", minor: 1, ident: 0, count: 1 + operations.len() as u32 }
            .encode(&mut body);
        Args::Sequence(sequence).encode(&mut body);
        operations.iter().for_each(|args| args.encode(&mut body));
        let mut w = Writer::new();
        Call::new(5, (9, 1), 1, body.as_bytes()).encode(&mut w);
        w.into_bytes()
    }

    fn statuses(calls: &[Vec<u8>]) -> (Vec<Status>, u32) {
        let mut channel = BackChannel::new(9, 1, 2);
        channel.set_session(SESSION);
        let mut handler_calls = 0;
        let mut handler = |args: &Args<'_>| {
            handler_calls += 1;
            Results::failure(args.op(), Status::BADHANDLE)
        };
        let statuses = calls.iter().map(|record| {
            let mut w = Writer::new();
            channel.answer(record, &mut handler, &mut w);
            let reply = Reply::decode(&w.as_bytes()[4..]).unwrap();
            let ReplyBody::Accepted { outcome: Accepted::Success(body), .. } = reply.body else {
                panic!("accepted")
            };
            vouch_nfs4::ReplyHead::decode(&mut Reader::new(body)).unwrap().status
        });
        (statuses.collect(), handler_calls)
    }

    fn recall() -> Args<'static> {
        Args::Recall(CbRecallArgs {
            stateid: Stateid::default(),
            truncate: false,
            handle: Filehandle::new(b"f").unwrap(),
        })
    }

    #[test]
    fn answers_retry_from_cache_and_refuses_callbacks_out_of_order() {
        let recall = |seq, slot, session| call(seq, slot, session, &[recall()]);
        // RFC 8881 §2.10.6.2.
        let calls = [1, 1, 2].map(|seq| recall(seq, 0, SESSION));
        assert_eq!(statuses(&calls), (vec![Status::BADHANDLE; 3], 2));
        // RFC 8881 §20.9.3.
        let calls =
            [recall(2, 0, SESSION), recall(1, 2, SESSION), recall(1, 0, SessionId([4; 16]))];
        assert_eq!(
            statuses(&calls),
            (vec![Status::SEQ_MISORDERED, Status::BADSLOT, Status::BADSESSION], 0)
        );
    }
}
