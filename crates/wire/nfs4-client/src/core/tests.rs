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
