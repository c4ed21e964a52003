//! The back channel (RFC 8881, sections 2.10.6 and 20).

use vouch_nfs4::op::{BindConnArgs, ChannelDirClient, SequenceFlags};

use super::*;
use crate::CallbackTo;

/// Two clients; the first holds a delegation that the second has recalled.
fn recalled(world: &mut World) -> (Peer, OutgoingCallback) {
    let (a, b) = (world.peer("a"), world.peer("b"));
    world.open_as(&a, "o", 1, share(1, 0), Claim::New, Want::Read).unwrap();
    assert_eq!(world.open(&b, 1, 2, 0), Err(Status::DELAY));
    let callback = world.callbacks().remove(0);
    (a, callback)
}

#[test]
fn callbacks_take_slots_in_order_and_give_them_back() {
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    for number in 1..=20 {
        world.open_as(&a, "o", number, share(1, 0), Claim::New, Want::Read).unwrap();
        assert_eq!(world.open(&b, number, 2, 0), Err(Status::DELAY));
    }
    let callbacks = world.callbacks();
    let slots: Vec<u32> = callbacks.iter().map(|callback| callback.sequence.unwrap().slot.0).collect();
    assert_eq!(slots, (0..8).collect::<Vec<_>>(), "as many as the client offered");
    world.answer(&callbacks[3], Status::OK);
    let next = world.callbacks();
    let sequence = next[0].sequence.unwrap();
    assert_eq!((next.len(), sequence.slot, sequence.seq), (1, SlotId(3), SlotSeq(2)));
}

#[test]
fn a_client_that_takes_fewer_callbacks_at_once_still_answers_those_under_way() {
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let recall = |world: &mut World, number| {
        world.open_as(&a, "o", number, share(1, 0), Claim::New, Want::Read).unwrap();
        assert_eq!(world.open(&b, number, 2, 0), Err(Status::DELAY));
        world.callbacks()
    };
    let first: Vec<OutgoingCallback> = (1..=3).flat_map(|number| recall(&mut world, number)).collect();
    let slot = |callback: &OutgoingCallback| callback.sequence.unwrap().slot.0;
    assert_eq!(first.iter().map(slot).collect::<Vec<_>>(), [0, 1, 2]);
    let answer = |sequence, highest_slot| CallbackAnswer::Answered { sequence, highest_slot, status: Status::OK, attributes: None };
    world.state.callback_done(first[0].id, answer(Status::OK, Some(SlotId(0))), 0);
    let fourth = recall(&mut world, 4).remove(0);
    assert_eq!(slot(&fourth), 0);
    // The first use of slot 1 counts as none; it may not be used again, and the one on slot 2 is still
    // under way.
    world.state.callback_done(first[1].id, answer(Status::DELAY, None), 0);
    assert!(world.callbacks().is_empty());
    assert!(recall(&mut world, 5).is_empty());
    world.answer(&first[2], Status::OK);
    assert!(world.callbacks().is_empty());
    let mut last = fourth;
    for number in [2, 5] {
        world.answer(&last, Status::OK);
        last = world.callbacks().remove(0);
        assert_eq!(slot(&last), 0);
        assert!(matches!(last.op, CallbackOp::Recall { file: recalled, .. } if recalled == file(number)), "{:?}", last.op);
    }
}

#[test]
fn a_lost_callback_is_sent_again_over_the_next_connection() {
    let mut world = World::new();
    let (mut a, callback) = recalled(&mut world);
    world.state.callback_done(callback.id, CallbackAnswer::Unreachable, 0);
    assert!(world.callbacks().is_empty());
    assert!(world.beat(&mut a).unwrap().contains(SequenceFlags::CB_PATH_DOWN | SequenceFlags::CB_PATH_DOWN_SESSION));
    let connection = world.connection();
    let args = BindConnArgs { session: a.session, dir: ChannelDirClient::BackOrBoth, rdma: false };
    world.state.bind_connection(&args, connection, sys(&user(0))).unwrap();
    let again = world.callbacks();
    assert_eq!(again[0].op, callback.op);
    assert_eq!((again[0].to, again[0].sequence.unwrap().seq), (CallbackTo::Connection(connection), SlotSeq(2)));
    // The first was never seen: its number is the one that the client waits for.
    let misordered =
        CallbackAnswer::Answered { sequence: Status::SEQ_MISORDERED, highest_slot: None, status: Status::OK, attributes: None };
    world.state.callback_done(again[0].id, misordered, 0);
    let third = world.callbacks();
    assert_eq!(third[0].sequence.unwrap().seq, SlotSeq(1));
    world.answer(&third[0], Status::OK);
    assert_eq!(world.beat(&mut a), Ok(SequenceFlags(0)));
}

#[test]
fn a_fault_of_the_back_channel_is_told() {
    let mut world = World::new();
    let (mut a, callback) = recalled(&mut world);
    let bad = CallbackAnswer::Answered { sequence: Status::BADSESSION, highest_slot: None, status: Status::OK, attributes: None };
    world.state.callback_done(callback.id, bad, 0);
    assert!(world.beat(&mut a).unwrap().contains(SequenceFlags::BACKCHANNEL_FAULT | SequenceFlags::CB_PATH_DOWN));
}

#[test]
fn a_recall_that_overtook_its_grant_is_repeated() {
    // Section 2.10.6.3.
    let mut world = World::new();
    let (_, callback) = recalled(&mut world);
    world.answer(&callback, Status::BAD_STATEID);
    assert!(world.callbacks().is_empty());
    world.pass(1000);
    assert_eq!(world.callbacks()[0].op, callback.op);
}

#[test]
fn what_is_no_longer_wanted_is_not_sent() {
    let mut world = World::new();
    let (a, callback) = recalled(&mut world);
    let CallbackOp::Recall { stateid, .. } = callback.op else { panic!("it is a recall") };
    world.state.callback_done(callback.id, CallbackAnswer::Unreachable, 0);
    world.state.return_delegation(Some(a.client), &stateid, &file(1), 0).unwrap();
    let connection = world.connection();
    let args = BindConnArgs { session: a.session, dir: ChannelDirClient::Back, rdma: false };
    world.state.bind_connection(&args, connection, sys(&user(0))).unwrap();
    assert!(world.callbacks().is_empty());
}

#[test]
fn answers_after_the_client_is_gone_are_no_matter() {
    let mut world = World::new();
    let (a, callback) = recalled(&mut world);
    world.state.revoke_client(a.id);
    world.state.callback_done(callback.id, CallbackAnswer::Unreachable, 0);
    world.state.callback_done(callback.id, CallbackAnswer::Unreachable, 0);
    assert_eq!(world.state.callbacks.len(), 0);
}

#[test]
fn a_client_that_offers_nothing_we_speak_gets_a_session_without_callbacks() {
    // Section 18.36.3: callback_sec_parms4.
    use vouch_nfs4::op::{BackchannelCtlArgs, CreateSessionFlags};
    use vouch_nfs4::{CallbackSec, GssCallbackHandles, GssService, SysCred};
    let gss = || CallbackSec::Gss(GssCallbackHandles { service: GssService::Integrity, from_server: Bytes(b""), from_client: Bytes(b"c") });
    let unix = || CallbackSec::Sys(SysCred { stamp: 0, machine_name: Bytes(b"m"), uid: 7, gid: 8, gids: List(vec![]) });
    let mut world = World::new();
    let introduced = world.introduce("a", 1, 0).unwrap();
    let connection = world.connection();
    let args = CreateSessionArgs { sec_parms: List(vec![gss()]), ..session_args(introduced.client, introduced.seq) };
    let ok = world.state.create_session(&args, connection, sys(&user(0)), 0).unwrap();
    assert_eq!(ok.flags, CreateSessionFlags(0));
    let client = world.state.client_by_id(introduced.client).unwrap();
    let mut peer = Peer { client, id: introduced.client, session: ok.session, connection, seq: SlotSeq(0) };
    assert!(world.beat(&mut peer).unwrap().contains(SequenceFlags::CB_PATH_DOWN));
    let mut bind = |dir| world.state.bind_connection(&BindConnArgs { session: ok.session, dir, rdma: false }, connection, sys(&user(0)));
    assert_eq!(bind(ChannelDirClient::Back), Err(Status::INVAL));
    assert_eq!(bind(ChannelDirClient::BackOrBoth).unwrap().dir, vouch_nfs4::op::ChannelDirServer::Fore);
    // Section 18.33: another offer opens it; one that can't be met changes nothing.
    let Ok(Sequenced::New(turn)) = world.sequence_on(&peer, 1, SlotSeq(1), false) else { panic!("a new call") };
    let offer = |sec| BackchannelCtlArgs { program: 5, sec_parms: List(vec![sec]) };
    assert_eq!(world.state.backchannel_ctl(&turn, &offer(gss()), sys(&user(0))), Err(Status::NOENT));
    assert_eq!(world.state.backchannel_ctl(&turn, &offer(unix()), sys(&user(0))), Ok(()));
    let args = BindConnArgs { session: ok.session, dir: ChannelDirClient::BackOrBoth, rdma: false };
    assert_eq!(world.state.bind_connection(&args, connection, sys(&user(0))).unwrap().dir, vouch_nfs4::op::ChannelDirServer::Both);
    world.state.reclaim_complete(peer.client, false).unwrap();
    let b = world.peer("b");
    world.open_as(&peer, "o", 1, share(1, 0), Claim::New, Want::Read).unwrap();
    assert_eq!(world.open(&b, 1, 2, 0), Err(Status::DELAY));
    let callback = world.callbacks().remove(0);
    assert_eq!(callback.credential, CallbackCredential::Sys { uid: 7, gid: 8, machine: (*b"m").into() });
}

#[test]
fn a_context_that_the_client_offers_is_taken_before_what_proves_nothing() {
    // RFC 8881, section 2.10.8.3.
    use vouch_nfs4::{CallbackSec, GssCallbackHandles, GssService};
    let gss = |from_server| {
        CallbackSec::Gss(GssCallbackHandles { service: GssService::Privacy, from_server: Bytes(from_server), from_client: Bytes(b"c") })
    };
    let chosen = |offers: &[CallbackSec<'_>]| crate::state::session::create_session::callback_credential(offers);
    let Some(CallbackCredential::Gss(context)) = chosen(&[CallbackSec::None, gss(b""), gss(b"s")]) else { panic!("the context") };
    assert_eq!((context.flavour, &*context.from_server, &*context.from_client), (crate::Flavour::Krb5p, &b"s"[..], &b"c"[..]));
    assert_eq!(chosen(&[gss(b""), CallbackSec::None]), Some(CallbackCredential::None));
    assert_eq!(chosen(&[gss(b"")]), None);
}

/// Contexts of which the test says how long they last: the first byte of a name is its number.
#[derive(Debug)]
struct Lives([Arc<Left>; 2]);

#[derive(Debug)]
struct Left(std::sync::atomic::AtomicU64);

impl crate::CallbackContexts for Lives {
    fn is_usable(&self, _: &[u8], _: &crate::Principal) -> bool {
        true
    }

    fn life(&self, from_server: &[u8]) -> Arc<dyn crate::ContextLife> {
        self.0[usize::from(from_server[0])].clone()
    }
}

impl crate::ContextLife for Left {
    fn left_ms(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[test]
fn the_end_of_what_protects_callbacks_is_told_and_another_context_mends_it() {
    // RFC 8881, sections 18.46.3 (flags) and 18.33 (BACKCHANNEL_CTL).
    use vouch_nfs4::op::BackchannelCtlArgs;
    use vouch_nfs4::{CallbackSec, GssCallbackHandles, GssService};
    let gss = |name: &'static [u8]| {
        CallbackSec::Gss(GssCallbackHandles { service: GssService::Integrity, from_server: Bytes(name), from_client: Bytes(b"c") })
    };
    let lives = [u64::MAX, u64::MAX].map(|left| Arc::new(Left(left.into())));
    let lasts = |number: usize, left| lives[number].0.store(left, std::sync::atomic::Ordering::Relaxed);
    let mut world = World::new();
    world.state.set_callback_contexts(Arc::new(Lives(lives.clone())));
    let introduced = world.introduce("a", 1, 0).unwrap();
    let connection = world.connection();
    let args = CreateSessionArgs { sec_parms: List(vec![gss(&[0])]), ..session_args(introduced.client, introduced.seq) };
    let ok = world.state.create_session(&args, connection, sys(&user(0)), 0).unwrap();
    let client = world.state.client_by_id(introduced.client).unwrap();
    let mut a = Peer { client, id: introduced.client, session: ok.session, connection, seq: SlotSeq(0) };
    world.state.reclaim_complete(client, false).unwrap();
    let b = world.peer("b");
    let by = |callback: &OutgoingCallback| match &callback.credential {
        CallbackCredential::Gss(context) => context.from_server[0],
        other => panic!("{other:?}"),
    };
    assert_eq!(world.beat(&mut a), Ok(SequenceFlags(0)));
    for number in 1..=2 {
        let opened = world.open_as(&a, "o", number, share(1, 0), Claim::New, Want::Read).unwrap();
        assert!(matches!(opened.delegation, Granted::Read(_)));
    }
    lasts(0, world.state.config.lease_ms);
    assert_eq!(world.beat(&mut a), Ok(SequenceFlags::CB_GSS_CONTEXTS_EXPIRING));
    // It ends between the recall and its being sent.
    assert_eq!(world.open(&b, 1, 2, 0), Err(Status::DELAY));
    let first = world.callbacks().remove(0);
    lasts(0, 0);
    world.state.callback_done(first.id, CallbackAnswer::NoContext, 0);
    assert_eq!(world.open(&b, 2, 2, 0), Err(Status::DELAY));
    assert!(world.callbacks().is_empty());
    assert_eq!(world.beat(&mut a), Ok(SequenceFlags::CB_GSS_CONTEXTS_EXPIRED | SequenceFlags::CB_PATH_DOWN));
    let opened = world.open_as(&a, "o", 3, share(1, 0), Claim::New, Want::Read).unwrap();
    assert!(!matches!(opened.delegation, Granted::Read(_) | Granted::Write(_)), "it could not be recalled");
    // Another context, over the same connection: both recalls leave, the first by the number that was
    // not used.
    let Ok(Sequenced::New(turn)) = world.sequence_on(&a, 1, SlotSeq(1), false) else { panic!("a new call") };
    let args = BackchannelCtlArgs { program: 5, sec_parms: List(vec![gss(&[1])]) };
    assert_eq!(world.state.backchannel_ctl(&turn, &args, sys(&user(0))), Ok(()));
    let sent = world.callbacks();
    assert_eq!((sent.len(), &sent[0].op, sent[0].to), (2, &first.op, CallbackTo::Connection(connection)));
    assert_eq!(sent[0].sequence, first.sequence);
    assert!(sent.iter().all(|callback| by(callback) == 1));
    assert_eq!(world.beat(&mut a), Ok(SequenceFlags(0)));
}
