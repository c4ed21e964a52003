//! RFC 8881 §2.10.6 and 20.

use vouch_nfs4::op::{BindConnArgs, ChannelDirClient, SequenceFlags};

use super::*;
use crate::CallbackTo;

fn recalled() -> (Fixture, Peer, OutgoingCallback) {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    fixture.open_as(&a, "o", 1, share(1, 0), Claim::New, Want::Read).unwrap();
    assert_eq!(fixture.open(&b, 1, 2, 0), Err(Status::DELAY));
    let callback = fixture.callbacks().remove(0);
    (fixture, a, callback)
}

fn bind(fixture: &mut Fixture, session: SessionId, dir: ChannelDirClient) -> ConnectionId {
    let connection = fixture.new_connection();
    fixture
        .state
        .bind_connection(&BindConnArgs { session, dir, rdma: false }, connection, sys(&user(0)))
        .unwrap();
    connection
}

#[test]
fn callbacks_use_free_slots_in_order() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    for number in 1..=20 {
        fixture.open_as(&a, "o", number, share(1, 0), Claim::New, Want::Read).unwrap();
        assert_eq!(fixture.open(&b, number, 2, 0), Err(Status::DELAY));
    }
    let callbacks = fixture.callbacks();
    let slots: Vec<u32> =
        callbacks.iter().map(|callback| callback.sequence.unwrap().slot.0).collect();
    assert_eq!(slots, (0..8).collect::<Vec<_>>(), "all slots that the client offered");
    fixture.answer(&callbacks[3], Status::OK);
    let next = fixture.callbacks();
    let sequence = next[0].sequence.unwrap();
    assert_eq!((next.len(), sequence.slot, sequence.seq), (1, SlotId(3), SlotSeq(2)));
}

#[test]
fn reduced_callback_slots_keep_callbacks_in_progress() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let recall = |fixture: &mut Fixture, number| {
        fixture.open_as(&a, "o", number, share(1, 0), Claim::New, Want::Read).unwrap();
        assert_eq!(fixture.open(&b, number, 2, 0), Err(Status::DELAY));
        fixture.callbacks()
    };
    let first: Vec<OutgoingCallback> =
        (1..=3).flat_map(|number| recall(&mut fixture, number)).collect();
    let slot = |callback: &OutgoingCallback| callback.sequence.unwrap().slot.0;
    assert_eq!(first.iter().map(slot).collect::<Vec<_>>(), [0, 1, 2]);
    let answer = |sequence, highest_slot| CallbackAnswer::Answered {
        sequence,
        highest_slot,
        status: Status::OK,
        attributes: None,
    };
    fixture.state.callback_done(first[0].id, answer(Status::OK, Some(SlotId(0))), 0);
    let fourth = recall(&mut fixture, 4).remove(0);
    assert_eq!(slot(&fourth), 0);
    fixture.state.callback_done(first[1].id, answer(Status::DELAY, None), 0);
    assert!(fixture.callbacks().is_empty());
    assert!(recall(&mut fixture, 5).is_empty());
    fixture.answer(&first[2], Status::OK);
    assert!(fixture.callbacks().is_empty());
    let mut last = fourth;
    for number in [2, 5] {
        fixture.answer(&last, Status::OK);
        last = fixture.callbacks().remove(0);
        assert_eq!(slot(&last), 0);
        assert!(
            matches!(last.op, CallbackOp::Recall { file: of_file, .. } if of_file == file(number)),
            "{:?}",
            last.op
        );
    }
}

#[test]
fn lost_callback_is_resent_over_next_connection() {
    let (mut fixture, mut a, callback) = recalled();
    fixture.state.callback_done(callback.id, CallbackAnswer::Unreachable, 0);
    assert!(fixture.callbacks().is_empty());
    assert!(
        fixture
            .renew_lease(&mut a)
            .unwrap()
            .contains(SequenceFlags::CB_PATH_DOWN | SequenceFlags::CB_PATH_DOWN_SESSION)
    );
    let connection = bind(&mut fixture, a.session, ChannelDirClient::BackOrBoth);
    let again = fixture.callbacks();
    assert_eq!(again[0].op, callback.op);
    assert_eq!(
        (again[0].to, again[0].sequence.unwrap().seq),
        (CallbackTo::Connection(connection), SlotSeq(2))
    );
    fixture.state.callback_done(again[0].id, refused(Status::SEQ_MISORDERED), 0);
    let third = fixture.callbacks();
    assert_eq!(third[0].sequence.unwrap().seq, SlotSeq(1));
    fixture.answer(&third[0], Status::OK);
    assert_eq!(fixture.renew_lease(&mut a), Ok(SequenceFlags(0)));
}

fn refused(sequence: Status) -> CallbackAnswer {
    CallbackAnswer::Answered { sequence, highest_slot: None, status: Status::OK, attributes: None }
}

#[test]
fn refused_callbacks_are_reported_or_repeated() {
    let (mut fixture, mut a, callback) = recalled();
    fixture.state.callback_done(callback.id, refused(Status::BADSESSION), 0);
    assert!(
        fixture
            .renew_lease(&mut a)
            .unwrap()
            .contains(SequenceFlags::BACKCHANNEL_FAULT | SequenceFlags::CB_PATH_DOWN)
    );
    let (mut fixture, _, callback) = recalled();
    fixture.answer(&callback, Status::BAD_STATEID);
    assert!(fixture.callbacks().is_empty(), "the recall overtook the reply to OPEN");
    fixture.advance(1000);
    assert_eq!(fixture.callbacks()[0].op, callback.op);
}

#[test]
fn callbacks_without_their_delegation_or_client_are_dropped() {
    let (mut fixture, a, callback) = recalled();
    let CallbackOp::Recall { stateid, .. } = callback.op else { panic!("not a recall") };
    fixture.state.callback_done(callback.id, CallbackAnswer::Unreachable, 0);
    fixture.return_delegation(&a, &stateid, 1).unwrap();
    bind(&mut fixture, a.session, ChannelDirClient::Back);
    assert!(fixture.callbacks().is_empty());
    let (mut fixture, a, callback) = recalled();
    fixture.state.revoke_client(a.id);
    for _ in 0..2 {
        fixture.state.callback_done(callback.id, CallbackAnswer::Unreachable, 0);
    }
    assert_eq!(fixture.state.callbacks.len(), 0);
}

#[test]
fn session_without_usable_callback_flavour_has_no_callbacks() {
    // §18.36.3.
    use vouch_nfs4::op::{BackchannelCtlArgs, CreateSessionFlags};
    use vouch_nfs4::{CallbackSec, GssCallbackHandles, GssService, SysCred};
    let gss = || {
        CallbackSec::Gss(GssCallbackHandles {
            service: GssService::Integrity,
            from_server: Bytes(b""),
            from_client: Bytes(b"c"),
        })
    };
    let unix = || {
        CallbackSec::Sys(SysCred {
            stamp: 0,
            machine_name: Bytes(b"m"),
            uid: 7,
            gid: 8,
            gids: List(vec![]),
        })
    };
    let mut fixture = Fixture::new();
    let exchanged = fixture.exchange_id("a", 1, 0).unwrap();
    let connection = fixture.new_connection();
    let args = CreateSessionArgs {
        sec_parms: List(vec![gss()]),
        ..session_args(exchanged.client, exchanged.seq)
    };
    let ok = fixture.create_session(&args, connection).unwrap();
    assert_eq!(ok.flags, CreateSessionFlags(0));
    let mut peer = fixture.peer_of(&exchanged, ok.session, connection);
    assert!(fixture.renew_lease(&mut peer).unwrap().contains(SequenceFlags::CB_PATH_DOWN));
    let mut bind = |dir| {
        fixture.state.bind_connection(
            &BindConnArgs { session: ok.session, dir, rdma: false },
            connection,
            sys(&user(0)),
        )
    };
    assert_eq!(bind(ChannelDirClient::Back), Err(Status::INVAL));
    assert_eq!(
        bind(ChannelDirClient::BackOrBoth).unwrap().dir,
        vouch_nfs4::op::ChannelDirServer::Fore
    );
    // §18.33: an offer without a usable flavour changes nothing.
    let turn = fixture.begin(&peer, 1, 1, false);
    let offer = |sec| BackchannelCtlArgs { program: 5, sec_parms: List(vec![sec]) };
    assert_eq!(
        fixture.state.backchannel_ctl(&turn, &offer(gss()), sys(&user(0))),
        Err(Status::NOENT)
    );
    assert_eq!(fixture.state.backchannel_ctl(&turn, &offer(unix()), sys(&user(0))), Ok(()));
    let args = BindConnArgs { session: ok.session, dir: ChannelDirClient::BackOrBoth, rdma: false };
    assert_eq!(
        fixture.state.bind_connection(&args, connection, sys(&user(0))).unwrap().dir,
        vouch_nfs4::op::ChannelDirServer::Both
    );
    fixture.state.reclaim_complete(peer.client, false).unwrap();
    let b = fixture.peer("b");
    fixture.open_as(&peer, "o", 1, share(1, 0), Claim::New, Want::Read).unwrap();
    assert_eq!(fixture.open(&b, 1, 2, 0), Err(Status::DELAY));
    let callback = fixture.callbacks().remove(0);
    assert_eq!(
        callback.credential,
        CallbackCredential::Sys { uid: 7, gid: 8, machine: (*b"m").into() }
    );
}

#[test]
fn gss_callback_credential_is_preferred_over_none() {
    // §2.10.8.3.
    use vouch_nfs4::{CallbackSec, GssCallbackHandles, GssService};
    let gss = |from_server| {
        CallbackSec::Gss(GssCallbackHandles {
            service: GssService::Privacy,
            from_server: Bytes(from_server),
            from_client: Bytes(b"c"),
        })
    };
    let choose_credential = |offers: &[CallbackSec<'_>]| {
        crate::state::session::create_session::callback_credential(offers)
    };
    let Some(CallbackCredential::Gss(context)) =
        choose_credential(&[CallbackSec::None, gss(b""), gss(b"s")])
    else {
        panic!("the context")
    };
    assert_eq!(
        (context.flavour, &*context.from_server, &*context.from_client),
        (crate::Flavour::Krb5p, &b"s"[..], &b"c"[..])
    );
    assert_eq!(choose_credential(&[gss(b""), CallbackSec::None]), Some(CallbackCredential::None));
    assert_eq!(choose_credential(&[gss(b"")]), None);
}

#[derive(Debug)]
struct TestContexts([Arc<RemainingLife>; 2]);

#[derive(Debug)]
struct RemainingLife(std::sync::atomic::AtomicU64);

impl crate::CallbackContexts for TestContexts {
    fn is_usable(&self, _: &[u8], _: &crate::Principal) -> bool {
        true
    }

    fn life(&self, from_server: &[u8]) -> Arc<dyn crate::ContextLife> {
        self.0[usize::from(from_server[0])].clone()
    }
}

impl crate::ContextLife for RemainingLife {
    fn left_ms(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[test]
fn expired_gss_context_stops_callbacks_until_replaced() {
    // §18.46.3 and 18.33.
    use vouch_nfs4::op::BackchannelCtlArgs;
    use vouch_nfs4::{CallbackSec, GssCallbackHandles, GssService};
    let gss = |name: &'static [u8]| {
        CallbackSec::Gss(GssCallbackHandles {
            service: GssService::Integrity,
            from_server: Bytes(name),
            from_client: Bytes(b"c"),
        })
    };
    let remaining = [u64::MAX, u64::MAX].map(|left| Arc::new(RemainingLife(left.into())));
    let set_remaining =
        |number: usize, left| remaining[number].0.store(left, std::sync::atomic::Ordering::Relaxed);
    let mut fixture = Fixture::new();
    fixture.state.set_callback_contexts(Arc::new(TestContexts(remaining.clone())));
    let exchanged = fixture.exchange_id("a", 1, 0).unwrap();
    let connection = fixture.new_connection();
    let args = CreateSessionArgs {
        sec_parms: List(vec![gss(&[0])]),
        ..session_args(exchanged.client, exchanged.seq)
    };
    let ok = fixture.create_session(&args, connection).unwrap();
    let mut a = fixture.peer_of(&exchanged, ok.session, connection);
    fixture.state.reclaim_complete(a.client, false).unwrap();
    let b = fixture.peer("b");
    let context_of = |callback: &OutgoingCallback| match &callback.credential {
        CallbackCredential::Gss(context) => context.from_server[0],
        other => panic!("{other:?}"),
    };
    assert_eq!(fixture.renew_lease(&mut a), Ok(SequenceFlags(0)));
    for number in 1..=2 {
        let opened = fixture.open_as(&a, "o", number, share(1, 0), Claim::New, Want::Read).unwrap();
        assert!(matches!(opened.delegation, Granted::Read(_)));
    }
    set_remaining(0, fixture.state.config.lease_ms);
    assert_eq!(fixture.renew_lease(&mut a), Ok(SequenceFlags::CB_GSS_CONTEXTS_EXPIRING));
    assert_eq!(fixture.open(&b, 1, 2, 0), Err(Status::DELAY));
    let first = fixture.callbacks().remove(0);
    set_remaining(0, 0);
    fixture.state.callback_done(first.id, CallbackAnswer::NoContext, 0);
    assert_eq!(fixture.open(&b, 2, 2, 0), Err(Status::DELAY));
    assert!(fixture.callbacks().is_empty());
    assert_eq!(
        fixture.renew_lease(&mut a),
        Ok(SequenceFlags::CB_GSS_CONTEXTS_EXPIRED | SequenceFlags::CB_PATH_DOWN)
    );
    let opened = fixture.open_as(&a, "o", 3, share(1, 0), Claim::New, Want::Read).unwrap();
    assert!(
        !matches!(opened.delegation, Granted::Read(_) | Granted::Write(_)),
        "a delegation could not be recalled"
    );
    let turn = fixture.begin(&a, 1, 1, false);
    let args = BackchannelCtlArgs { program: 5, sec_parms: List(vec![gss(&[1])]) };
    assert_eq!(fixture.state.backchannel_ctl(&turn, &args, sys(&user(0))), Ok(()));
    let sent = fixture.callbacks();
    assert_eq!(
        (sent.len(), &sent[0].op, sent[0].to),
        (2, &first.op, CallbackTo::Connection(connection))
    );
    assert_eq!(sent[0].sequence, first.sequence);
    assert!(sent.iter().all(|callback| context_of(callback) == 1));
    assert_eq!(fixture.renew_lease(&mut a), Ok(SequenceFlags(0)));
}
