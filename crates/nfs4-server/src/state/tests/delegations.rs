//! Delegations (RFC 8881, section 10.4).

use vouch_nfs4::op::{NoDelegation, SequenceFlags};

use super::*;

fn read_delegation(world: &mut World, peer: &Peer, number: u8) -> Stateid {
    let opened = world.open_as(peer, "o", number, share(1, 0), Claim::New, Want::Read).unwrap();
    match opened.delegation {
        Granted::Read(stateid) => stateid,
        other => panic!("a delegation is given: {other:?}"),
    }
}

fn write_delegation(world: &mut World, peer: &Peer, number: u8) -> Stateid {
    let opened = world.open_as(peer, "o", number, share(3, 0), Claim::New, Want::Write).unwrap();
    match opened.delegation {
        Granted::Write(stateid) => stateid,
        other => panic!("a delegation is given: {other:?}"),
    }
}

#[test]
fn a_delegation_nobody_asked_for_comes_with_the_second_open() {
    let mut world = World::new();
    let peer = world.peer("a");
    let mut open = |want| world.open_as(&peer, "o", 1, share(1, 0), Claim::New, want).unwrap();
    assert_eq!(open(Want::Unstated).delegation, Granted::None);
    assert_eq!(open(Want::No).delegation, Granted::Refused(NoDelegation::NOT_WANTED));
    assert!(matches!(open(Want::Unstated).delegation, Granted::Read(_)));
    assert_eq!(open(Want::Unstated).delegation, Granted::None);
}

#[test]
fn a_writer_waits_for_readers_delegations() {
    // Section 10.4.2.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let delegation = read_delegation(&mut world, &a, 1);
    assert!(world.open(&b, 1, 1, 0).is_ok());
    assert_eq!(world.open(&b, 1, 2, 0), Err(Status::DELAY));
    let callbacks = world.callbacks();
    assert!(matches!(callbacks[0].op, CallbackOp::Recall { stateid, .. } if stateid == delegation));
    assert_eq!(callbacks[0].sequence.unwrap().session, a.session);
    // Once is enough.
    assert_eq!(world.open(&b, 1, 2, 0), Err(Status::DELAY));
    assert!(world.callbacks().is_empty());
    world.answer(&callbacks[0], Status::OK);
    assert_eq!(world.open(&b, 1, 2, 0), Err(Status::DELAY));
    // An open under it is still possible, so that it can be returned (section 10.2.1).
    assert!(world.open_as(&a, "p", 1, share(1, 0), Claim::Delegated(delegation), Want::Unstated).is_ok());
    assert_eq!(world.open_as(&a, "p", 1, share(3, 0), Claim::Delegated(delegation), Want::Unstated).unwrap_err(), Status::ACCESS);
    world.state.return_delegation(Some(a.client), &delegation, &file(1), 0).unwrap();
    assert!(world.open(&b, 1, 2, 0).is_ok());
    // Not while others contend.
    let again = world.open_as(&a, "o", 1, share(1, 0), Claim::New, Want::Read).unwrap();
    assert!(matches!(again.delegation, Granted::Refused(NoDelegation::Contention(_))));
}

#[test]
fn a_write_delegation_is_for_the_only_one() {
    // Section 10.4.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let delegation = write_delegation(&mut world, &a, 1);
    assert!(world.state.io(Some(a.client), &delegation, &file(1), Io::Write, 0).is_ok());
    assert_eq!(world.open(&b, 1, 1, 0), Err(Status::DELAY));
    world.state.return_delegation(Some(a.client), &delegation, &file(1), 0).unwrap();
    world.open(&b, 2, 1, 0).unwrap();
    let refused = world.open_as(&a, "o", 2, share(3, 0), Claim::New, Want::Write).unwrap();
    assert!(matches!(refused.delegation, Granted::Refused(NoDelegation::Contention(_))));
    let read = read_delegation(&mut world, &b, 3);
    assert_eq!(world.state.io(Some(b.client), &read, &file(3), Io::Write, 0), Err(Status::OPENMODE));
}

#[test]
fn changes_without_an_open_recall_what_others_hold() {
    // Section 10.4.2.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    read_delegation(&mut world, &a, 1);
    assert_eq!(world.state.touch(&file(1), Some(a.client), Touch::Name, 0), Ok(()));
    assert_eq!(world.state.touch(&file(1), Some(b.client), Touch::Read, 0), Ok(()));
    assert!(world.callbacks().is_empty());
    for touch in [Touch::Change, Touch::Attributes, Touch::Name] {
        assert_eq!(world.state.touch(&file(1), Some(b.client), touch, 0), Err(Status::DELAY));
    }
    assert_eq!(world.callbacks().len(), 1);
    write_delegation(&mut world, &a, 2);
    assert_eq!(world.state.touch(&file(2), None, Touch::Read, 0), Err(Status::DELAY));
}

#[test]
fn none_is_given_while_another_may_be_changing_the_file() {
    // The change is made after the look for delegations, without the lock.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    for (number, by) in [(1, Some(b.client)), (2, None)] {
        assert_eq!(world.state.touch(&file(number), by, Touch::Attributes, 0), Ok(()));
        // What the client does itself meanwhile hides nobody else's change.
        assert_eq!(world.state.touch(&file(number), Some(a.client), Touch::Attributes, 0), Ok(()));
        let refused = world.open_as(&a, "o", number, share(1, 0), Claim::New, Want::Read).unwrap();
        assert!(matches!(refused.delegation, Granted::Refused(NoDelegation::Contention(_))), "{:?}", refused.delegation);
    }
    world.pass(2_000);
    for number in [1, 2] {
        read_delegation(&mut world, &a, number);
    }
    // Its own changes, and what others only read, are not in its way.
    assert_eq!(world.state.touch(&file(3), Some(a.client), Touch::Name, world.now), Ok(()));
    assert_eq!(world.state.touch(&file(3), Some(b.client), Touch::Read, world.now), Ok(()));
    read_delegation(&mut world, &a, 3);
}

#[test]
fn before_there_is_no_room_those_who_hold_many_are_asked_for_some() {
    // RFC 8881, section 20.6.
    let limits = Limits { delegations_max: 16, ..Limits::default() };
    let mut world = World::with(StateConfig { limits, ..config() }, &[]);
    let (mut many, mut few) = (world.peer("many"), world.peer("few"));
    let held: Vec<Stateid> = (0..12).map(|number| read_delegation(&mut world, &many, number)).collect();
    read_delegation(&mut world, &few, 100);
    assert!(world.callbacks().is_empty(), "there is room");
    read_delegation(&mut world, &few, 101);
    let asked = |callbacks: &[OutgoingCallback]| match callbacks {
        [OutgoingCallback { op: CallbackOp::RecallAny { keep }, sequence: Some(sequence), .. }] => (sequence.session, *keep),
        other => panic!("{other:?}"),
    };
    let callbacks = world.callbacks();
    assert_eq!(asked(&callbacks), (many.session, 9));
    // It does nothing: nobody is asked again at once, nothing is taken away, and the bound holds.
    world.answer(&callbacks[0], Status::OK);
    for number in [102, 103] {
        read_delegation(&mut world, &few, number);
    }
    assert!(world.callbacks().is_empty());
    let refused = world.open_as(&few, "o", 104, share(1, 0), Claim::New, Want::Read).unwrap();
    assert!(matches!(refused.delegation, Granted::Refused(NoDelegation::Resource(_))), "{:?}", refused.delegation);
    assert!(held.iter().all(|stateid| world.state.test_stateid(many.client, stateid).is_ok()));
    // Later it returns one, and is asked again when that is given away.
    for ms in [LEASE_MS / 2, LEASE_MS / 2 + 1] {
        world.pass(ms);
        world.beat(&mut many).unwrap();
        world.beat(&mut few).unwrap();
    }
    world.state.return_delegation(Some(many.client), &held[0], &file(0), world.now).unwrap();
    read_delegation(&mut world, &few, 105);
    assert_eq!(asked(&world.callbacks()), (many.session, 8));
}

#[test]
fn a_delegation_that_is_not_returned_is_revoked() {
    // Section 10.4.6; section 18.46.3: the flag; section 18.38: it is freed.
    let mut world = World::new();
    let (mut a, mut b) = (world.peer("a"), world.peer("b"));
    let delegation = read_delegation(&mut world, &a, 1);
    assert_eq!(world.open(&b, 1, 2, 0), Err(Status::DELAY));
    world.pass(LEASE_MS - 1);
    world.beat(&mut a).unwrap();
    world.beat(&mut b).unwrap();
    assert_eq!(world.open(&b, 1, 2, 0), Err(Status::DELAY));
    world.state.take_effects();
    world.pass(1);
    let lost = |effect: &StateEffect<Handle>| matches!(effect, StateEffect::Lost { delegation: true, why: Loss::NotReturned, .. });
    assert_eq!(world.state.take_effects().iter().filter(|effect| lost(effect)).count(), 1);
    world.beat(&mut b).unwrap();
    assert!(world.open(&b, 1, 2, 0).is_ok());
    assert!(world.beat(&mut a).unwrap().contains(SequenceFlags::RECALLABLE_STATE_REVOKED));
    assert_eq!(world.state.test_stateid(a.client, &delegation), Status::DELEG_REVOKED);
    assert_eq!(world.state.return_delegation(Some(a.client), &delegation, &file(1), 0), Err(Status::DELEG_REVOKED));
    assert_eq!(world.state.free_stateid(a.client, &delegation), Ok(()));
    assert!(!world.beat(&mut a).unwrap().contains(SequenceFlags::RECALLABLE_STATE_REVOKED));
    assert_eq!(world.state.test_stateid(a.client, &delegation), Status::BAD_STATEID);
}

#[test]
fn a_silent_holder_gives_way_at_once() {
    let mut world = World::new();
    let a = world.peer("a");
    read_delegation(&mut world, &a, 1);
    world.pass(LEASE_MS + 1);
    let b = world.peer("b");
    assert!(world.open(&b, 1, 2, 0).is_ok());
    assert_eq!(world.state.totals().delegations, 0);
    assert_eq!(world.open_files(), 1);
}

#[test]
fn none_is_given_without_a_way_back() {
    let mut world = World::new();
    let mut a = world.peer("a");
    world.state.connection_closed(a.connection);
    a.connection = world.connection();
    let opened = world.open_as(&a, "o", 1, share(1, 0), Claim::New, Want::Read).unwrap();
    assert!(matches!(opened.delegation, Granted::Refused(NoDelegation::Resource(_))));
}

#[test]
fn the_holder_of_a_write_delegation_is_asked_for_size_and_change() {
    // Section 10.4.3.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    write_delegation(&mut world, &a, 1);
    let ask = |world: &mut World, by: &Peer, now| world.state.delegated_attributes(&file(1), Some(by.client), false, now);
    assert_eq!(ask(&mut world, &a, 0), Ok(Holder::None));
    assert_eq!(ask(&mut world, &b, 0), Ok(Holder::Pending(0)));
    assert!(world.state.is_asked(&file(1), Some(b.client)));
    // Once is enough.
    assert_eq!(ask(&mut world, &b, 5), Ok(Holder::Pending(0)));
    let callbacks = world.callbacks();
    assert!(matches!(callbacks[..], [OutgoingCallback { op: CallbackOp::Getattr { times: false, .. }, .. }]));
    let told = HolderAttributes { size: 7, change: 9, accessed: None, modified: None };
    let answer = CallbackAnswer::Answered { sequence: Status::OK, highest_slot: None, status: Status::OK, attributes: Some(told) };
    world.state.callback_done(callbacks[0].id, answer, 0);
    assert_eq!(ask(&mut world, &b, 10), Ok(Holder::Reported(told)));
    assert!(!world.state.is_asked(&file(1), Some(b.client)));
    // It doesn't keep the times.
    assert_eq!(world.state.delegated_attributes(&file(1), Some(b.client), true, 10), Ok(Holder::None));
    // Later it is asked again; if it does not tell, the delegation is recalled.
    assert_eq!(ask(&mut world, &b, 5000), Ok(Holder::Pending(5000)));
    let callbacks = world.callbacks();
    world.answer(&callbacks[0], Status::BADHANDLE);
    assert!(matches!(world.callbacks()[0].op, CallbackOp::Recall { .. }));
}

fn extended(world: &mut World, peer: &Peer, share: Share, extra: Extra) -> Opened {
    let call = OpenCall {
        client: peer.client,
        owner: b"o",
        file: file(1),
        share,
        claim: Claim::New,
        want: Want::Any,
        extra,
        truncate: false,
        terms: TERMS,
        opener: None,
    };
    let plan = world.state.check_open(&call, 0).unwrap();
    world.state.open(&call, world.handle.clone(), plan.union, 0).unwrap()
}

#[test]
fn a_delegation_may_stand_in_the_place_of_an_open() {
    // RFC 9754, section 4.
    let extra = Extra { for_open: true, times: false };
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let opened = extended(&mut world, &a, share(3, 0), extra);
    let Granted::Write(delegation) = opened.delegation else { panic!("{opened:?}") };
    assert_eq!((opened.stateid, opened.extra), (Stateid::ANONYMOUS, extra));
    assert!(world.state.io(Some(a.client), &delegation, &file(1), Io::Write, 0).is_ok());
    assert_eq!(world.open_files(), 1);
    // Another waits for it; opens are made under it before it is given back.
    assert_eq!(world.open(&b, 1, 1, 0), Err(Status::DELAY));
    let open = world.open_as(&a, "o", 1, share(3, 0), Claim::Delegated(delegation), Want::Unstated).unwrap().stateid;
    world.state.return_delegation(Some(a.client), &delegation, &file(1), 0).unwrap();
    assert!(world.state.io(Some(a.client), &open, &file(1), Io::Write, 0).is_ok());
    assert!(world.open(&b, 1, 1, 0).is_ok());
    // Without a delegation there is an open.
    let opened = extended(&mut world, &b, share(1, 0), extra);
    assert!(matches!(opened.delegation, Granted::Refused(_)) && !opened.extra.for_open && !opened.stateid.is_special());
}

#[test]
fn an_open_that_denies_or_is_there_is_kept_beside_the_delegation() {
    // RFC 9754, section 4; RFC 8881, section 9.7: what is denied has to be known.
    for (before, deny) in [(false, 2), (true, 0)] {
        let mut world = World::new();
        let a = world.peer("a");
        let known = before.then(|| world.open_as(&a, "o", 1, share(3, 0), Claim::New, Want::No).unwrap().stateid);
        let opened = extended(&mut world, &a, share(3, deny), Extra { for_open: true, times: false });
        assert!(matches!(opened.delegation, Granted::Write(_)) && !opened.extra.for_open);
        assert!(known.is_none_or(|known| known.other == opened.stateid.other) && !opened.stateid.is_special());
    }
}

#[test]
fn times_are_kept_by_whom_they_were_given_to() {
    // RFC 9754, section 5.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let opened = extended(&mut world, &a, share(3, 0), Extra { for_open: false, times: true });
    let Granted::Write(delegation) = opened.delegation else { panic!("{opened:?}") };
    assert!(opened.extra.times);
    let keeps = |world: &mut World, peer: &Peer, stateid| world.state.keeps_times(Some(peer.client), stateid, &file(1), true, 0);
    assert_eq!(keeps(&mut world, &a, &delegation), Ok(()));
    assert_eq!(keeps(&mut world, &b, &delegation), Err(Status::BAD_STATEID));
    assert_eq!(keeps(&mut world, &a, &opened.stateid), Err(Status::BAD_STATEID));
    assert_eq!(world.state.delegated_attributes(&file(1), Some(b.client), true, 0), Ok(Holder::Pending(0)));
    assert!(matches!(world.callbacks()[0].op, CallbackOp::Getattr { times: true, .. }));
    // One without them has nothing to say.
    let plain = write_delegation(&mut world, &a, 2);
    assert_eq!(world.state.keeps_times(Some(a.client), &plain, &file(2), true, 0), Err(Status::BAD_STATEID));
}

#[test]
fn a_holder_that_can_not_be_asked_loses_the_delegation() {
    // RFC 8881, section 10.4.3.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    write_delegation(&mut world, &a, 1);
    assert_eq!(world.state.delegated_attributes(&file(1), Some(b.client), false, 0), Ok(Holder::Pending(0)));
    world.callbacks();
    let late = 60_000;
    assert_eq!(world.state.delegated_attributes(&file(1), Some(b.client), false, late), Err(Status::DELAY));
    assert!(world.callbacks().iter().any(|callback| matches!(callback.op, CallbackOp::Recall { .. })));
}

#[test]
fn who_may_be_the_holder_itself_is_not_kept_from_returning_what_is_recalled() {
    // RFC 7530, section 10.4.3: GETATTR of 4.0 has no client; Linux sends one with DELEGRETURN.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    write_delegation(&mut world, &a, 1);
    assert_eq!(world.open(&b, 1, 1, 0), Err(Status::DELAY));
    assert_eq!(world.state.delegated_attributes(&file(1), None, false, 0), Ok(Holder::None));
    assert_eq!(world.state.delegated_attributes(&file(1), Some(b.client), false, 0), Err(Status::DELAY));
}
