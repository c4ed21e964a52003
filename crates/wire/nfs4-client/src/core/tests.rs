use vouch_nfs4::CreateSeq;
use vouch_nfs4::op::{ChannelAttrs, CreateSessionFlags};
use vouch_oncrpc::{Flavor, OpaqueAuth};

use super::reply_batch::OpenedReply;
use super::*;
use crate::ProtectionError;

struct Window;

impl Protection for Window {
    fn begin(&mut self, w: &mut Writer, _: usize) -> Result<CallTag, ProtectionError> {
        OpaqueAuth::NONE.encode(w);
        OpaqueAuth::NONE.encode(w);
        Ok(CallTag::default())
    }

    fn outstanding_max(&self) -> usize {
        4
    }

    fn verify(&mut self, _: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError> {
        if verifier.body == VALID_VERIFIER { Ok(()) } else { Err(ProtectionError::Verifier) }
    }

    fn open<'a>(
        &mut self,
        tag: CallTag,
        verifier: OpaqueAuth<'_>,
        body: &'a [u8],
        _: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ProtectionError> {
        self.verify(tag, verifier).map(|()| body)
    }
}

const VALID_VERIFIER: &[u8] = b"true";

fn core() -> Core {
    let channel = ChannelAttrs {
        header_pad_size: 0,
        request_len_max: 1 << 16,
        response_len_max: 1 << 16,
        response_cached_len_max: 1 << 12,
        operations_max: 8,
        requests_max: 64,
        rdma_ird: None,
    };
    let mut core = Core::new(1, Box::new(Window), 7);
    let session = CreateSessionOk {
        session: SessionId([1; 16]),
        seq: CreateSeq(1),
        flags: CreateSessionFlags::default(),
        fore: channel,
        back: channel,
    };
    core.set_session(&session);
    core
}

fn send(core: &mut Core, token: u64, kind: CallKind) -> Option<u32> {
    let mut w = Writer::new();
    let call = core.begin(token, kind, &mut w).unwrap()?;
    core.end(call, &mut w).unwrap();
    Some(u32::from_be_bytes(w.as_bytes()[RECORD_MARK_LEN..][..4].try_into().unwrap()))
}

fn accepted(xid: u32, verifier: &[u8], outcome: Accepted<'_>) -> Vec<u8> {
    let verf = OpaqueAuth { flavor: Flavor::RPCSEC_GSS, body: verifier };
    let mut w = Writer::new();
    RpcReply { xid, body: RpcBody::Accepted { verf, outcome } }.encode(&mut w);
    w.into_bytes()
}

const IN_SESSION: CallKind = CallKind::Session { cache: false };

#[test]
fn window_limits_calls_and_reserves_one_for_sessionless_calls() {
    let mut core = core();
    assert_eq!(core.available(), 3);
    let first = send(&mut core, 1, IN_SESSION).unwrap();
    assert!((2..4).all(|token| send(&mut core, token, IN_SESSION).is_some()));
    assert_eq!((core.available(), send(&mut core, 4, IN_SESSION)), (0, None));
    assert!(send(&mut core, 5, CallKind::Sessionless).is_some());
    let mut w = Writer::new();
    let retry = core.begin_again(1, &mut w).unwrap().unwrap();
    core.end(retry, &mut w).unwrap();
    assert_eq!(core.available(), 0);
    let retried = u32::from_be_bytes(w.as_bytes()[RECORD_MARK_LEN..][..4].try_into().unwrap());
    assert_ne!(first, retried);
    let done = core
        .reply(&accepted(retried, VALID_VERIFIER, Accepted::SystemErr), &mut Vec::new())
        .unwrap()
        .map(|done| done.token);
    assert_eq!((done, core.available()), (Some(1), 0), "the sessionless call is still in flight");
    let lost = core.clear_session();
    assert_eq!(lost.len(), 2);
}

#[test]
fn unverified_failure_does_not_complete_call() {
    for outcome in [Accepted::GarbageArgs, Accepted::SystemErr, Accepted::ProcUnavail] {
        let mut core = core();
        let xid = send(&mut core, 1, IN_SESSION).unwrap();
        let (forged, valid) =
            (accepted(xid, b"fals", outcome), accepted(xid, VALID_VERIFIER, outcome));
        assert!(matches!(core.reply(&forged, &mut Vec::new()), Err(Error::Protection(_))));
        let (mut forged_copy, mut valid_copy) = (forged.clone(), valid.clone());
        let opened_replies = core.open_replies(vec![&mut forged_copy, &mut valid_copy]);
        assert!(matches!(
            &opened_replies[..],
            [
                OpenedReply::Reply { results: Err(Error::Protection(_)), .. },
                OpenedReply::Reply { .. }
            ]
        ));
        let mut outcomes = opened_replies.into_iter().map(|opened| {
            core.complete_reply(opened).map(|done| done.map(|done| done.outcome.map(drop)))
        });
        assert!(matches!(outcomes.next(), Some(Err(Error::Protection(_)))), "{outcome:?}");
        assert!(
            matches!(outcomes.next(), Some(Ok(Some(Err(Error::NotAccepted(_)))))),
            "{outcome:?}"
        );
    }
}

/// The slot of a server (RFC 8881 §2.10.6.1).
#[derive(Default)]
struct ServerSlot {
    seq: u32,
    /// Tokens of the executed calls.
    executed: Vec<u64>,
    checks_retries: bool,
    caches_replies: bool,
}

impl ServerSlot {
    /// Status, and the token of the call that the reply is for.
    fn execute(&mut self, seq: u32, token: u64) -> (Status, u64) {
        match seq.wrapping_sub(self.seq) {
            1 => {
                self.seq = seq;
                self.executed.push(token);
                (Status::OK, token)
            }
            0 if self.checks_retries && self.executed.last() != Some(&token) => {
                (Status::SEQ_FALSE_RETRY, 0)
            }
            0 if self.caches_replies => (Status::OK, *self.executed.last().unwrap_or(&0)),
            0 => (Status::RETRY_UNCACHED_REP, token),
            _ => (Status::SEQ_MISORDERED, 0),
        }
    }
}

fn sequence_reply(xid: u32, seq: u32, status: Status) -> Vec<u8> {
    let sequence = match status {
        Status::OK | Status::RETRY_UNCACHED_REP => Results::Sequence(Ok(SequenceOk {
            session: SessionId([1; 16]),
            seq: SlotSeq(seq),
            slot: SlotId(0),
            highest_slot: SlotId(63),
            target_highest_slot: SlotId(63),
            flags: vouch_nfs4::op::SequenceFlags(0),
        })),
        status => Results::Sequence(Err(status)),
    };
    let mut w = Writer::new();
    let count = 1 + u32::from(status == Status::RETRY_UNCACHED_REP);
    ReplyHead { status, tag: b"", count }.encode(&mut w);
    sequence.encode(&mut w);
    if count == 2 {
        Results::failure(Op::PUTFH, status).encode(&mut w);
    }
    accepted(xid, VALID_VERIFIER, Accepted::Success(w.as_bytes()))
}

/// Xid and sequence number.
fn send_with_seq(core: &mut Core, token: u64, is_again: bool) -> (u32, u32) {
    let mut w = Writer::new();
    let call = match is_again {
        true => core.begin_again(token, &mut w),
        false => core.begin(token, IN_SESSION, &mut w),
    };
    let mut call = call.unwrap().expect("slot 0 is free");
    call.op(&mut w, &Args::Putrootfh);
    core.end(call, &mut w).unwrap();
    let word = |at: usize| u32::from_be_bytes(w.as_bytes()[at..at + 4].try_into().unwrap());
    // Record mark, call header, two empty credentials, tag, minor version, count, SEQUENCE, session.
    (word(4), word(4 + 24 + 16 + 12 + 4 + 16))
}

#[test]
fn slot_works_after_invalid_replies_and_no_reply_is_for_another_call() {
    const CALLS: u64 = 6;
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        None,
        InvalidReply,
        InvalidReplyWithoutExecution,
        LostReply,
    }
    const FAULTS: [Fault; 4] =
        [Fault::None, Fault::InvalidReply, Fault::InvalidReplyWithoutExecution, Fault::LostReply];
    for faults in 0..4_usize.pow(CALLS as u32) {
        for (checks_retries, caches_replies) in [(true, false), (false, true), (false, false)] {
            let mut core = core();
            let mut server = ServerSlot { checks_retries, caches_replies, ..Default::default() };
            for token in 1..=CALLS {
                let fault = FAULTS[faults / 4_usize.pow(token as u32 - 1) % 4];
                let (mut xid, mut seq) = send_with_seq(&mut core, token, false);
                if matches!(fault, Fault::InvalidReply | Fault::LostReply) {
                    server.execute(seq, token);
                }
                match fault {
                    Fault::None => {}
                    Fault::LostReply => (xid, seq) = send_with_seq(&mut core, token, true),
                    Fault::InvalidReply | Fault::InvalidReplyWithoutExecution => {
                        let failed = core.fail_call(Some(xid), ProtectionError::Body.into());
                        assert!(failed.is_some_and(|failed| failed.outcome.is_err()));
                        continue;
                    }
                }
                loop {
                    let (status, of) = server.execute(seq, token);
                    let case = format!("call {token}, {status:?}, faults {faults:o}");
                    assert!(status != Status::OK || of == token, "reply of call {of}: {case}");
                    let reply = sequence_reply(xid, seq, status);
                    let mut scratch = Vec::new();
                    let done = core.reply(&reply, &mut scratch).unwrap().expect("a reply");
                    if status == Status::OK {
                        assert!(done.outcome.is_ok(), "{case}");
                        break;
                    }
                    assert!(done.is_repeatable, "{case}");
                    (xid, seq) = send_with_seq(&mut core, token, false);
                }
            }
        }
    }
}

#[test]
fn call_that_must_not_run_twice_is_not_repeatable_after_a_retry() {
    for (cache, is_again, status, expected) in [
        (true, true, Status::RETRY_UNCACHED_REP, false),
        (true, true, Status::SEQ_FALSE_RETRY, false),
        (false, true, Status::RETRY_UNCACHED_REP, true),
        (true, false, Status::SEQ_FALSE_RETRY, true),
        (false, false, Status::SEQ_MISORDERED, false),
    ] {
        let mut core = core();
        let mut xid = send(&mut core, 1, CallKind::Session { cache }).unwrap();
        if is_again {
            xid = send_with_seq(&mut core, 1, true).0;
        }
        let reply = sequence_reply(xid, 1, status);
        // The retry has two operations.
        let mut scratch = Vec::new();
        let done = core.reply(&reply, &mut scratch).unwrap().unwrap();
        assert_eq!(done.is_repeatable, expected, "{cache} {is_again} {status:?}");
        let used = status != Status::SEQ_MISORDERED;
        assert_eq!(send_with_seq(&mut core, 2, false).1, 1 + u32::from(used), "{status:?}");
    }
}

struct Destroyable(&'static [u8]);

impl Protection for Destroyable {
    fn begin(&mut self, w: &mut Writer, header_start: usize) -> Result<CallTag, ProtectionError> {
        Window.begin(w, header_start)
    }

    fn destroy_context(&mut self, _: u32) -> Option<Vec<u8>> {
        Some(self.0.to_vec())
    }

    fn verify(&mut self, tag: CallTag, verifier: OpaqueAuth<'_>) -> Result<(), ProtectionError> {
        Window.verify(tag, verifier)
    }

    fn open<'a>(
        &mut self,
        tag: CallTag,
        v: OpaqueAuth<'_>,
        body: &'a [u8],
        s: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ProtectionError> {
        Window.open(tag, v, body, s)
    }
}

#[test]
fn destroys_context_once_after_its_last_call() {
    let mut core = core();
    core.set_protection(Box::new(Destroyable(b"first")));
    assert_eq!(core.destroy_previous_context(), None, "the window protection has no context");
    let mut w = Writer::new();
    let mut begin = |core: &mut Core, token| {
        drop(core.begin(token, CallKind::Session { cache: false }, &mut w).unwrap().unwrap())
    };
    (1..=3).for_each(|token| begin(&mut core, token));
    core.set_protection(Box::new(Destroyable(b"second")));
    begin(&mut core, 4);
    let xid = core.calls.iter().flatten().find(|call| call.token == 1).unwrap().xid;
    assert_eq!(core.destroy_previous_context(), None);
    assert!(
        core.complete_reply(OpenedReply::Reply { xid, results: Err(Error::Lost) })
            .unwrap()
            .is_some()
    );
    assert_eq!(core.destroy_previous_context(), None);
    drop(core.begin_again(2, &mut Writer::new()).unwrap().unwrap());
    assert_eq!(core.destroy_previous_context(), None);
    assert_eq!(core.clear_session().len(), 3);
    assert_eq!(core.destroy_previous_context().as_deref(), Some(&b"first"[..]));
    assert_eq!((core.destroy_previous_context(), core.in_flight), (None, 0));
    assert_eq!(core.destroy_context().map(|(_, record)| record).as_deref(), Some(&b"second"[..]));
}

#[test]
fn repeated_call_without_slot_keeps_its_transaction_id() {
    let mut core = Core::new(0, Box::new(Window), 7);
    let xid = send(&mut core, 5, CallKind::Sessionless).unwrap();
    let mut w = Writer::new();
    let call = core.begin_again(5, &mut w).unwrap().expect("it is in flight");
    core.end(call, &mut w).unwrap();
    assert_eq!(w.as_bytes()[RECORD_MARK_LEN..][..4], xid.to_be_bytes());
    assert_ne!(send(&mut core, 6, CallKind::Sessionless), Some(xid));
}
