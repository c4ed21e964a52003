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
    world.pass(1);
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
    assert_eq!(world.state.delegated_attributes(&file(1), Some(a.client), 0), Ok(None));
    assert_eq!(world.state.delegated_attributes(&file(1), Some(b.client), 0), Err(Status::DELAY));
    let callbacks = world.callbacks();
    assert!(matches!(callbacks[0].op, CallbackOp::Getattr { .. }));
    let told = HolderAttributes { size: 7, change: 9 };
    let answer = CallbackAnswer::Answered { sequence: Status::OK, highest_slot: None, status: Status::OK, attributes: Some(told) };
    world.state.callback_done(callbacks[0].id, answer, 0);
    assert_eq!(world.state.delegated_attributes(&file(1), Some(b.client), 10), Ok(Some(told)));
    // Later it is asked again; if it does not tell, the delegation is recalled.
    assert_eq!(world.state.delegated_attributes(&file(1), Some(b.client), 5000), Err(Status::DELAY));
    let callbacks = world.callbacks();
    world.answer(&callbacks[0], Status::BADHANDLE);
    assert!(matches!(world.callbacks()[0].op, CallbackOp::Recall { .. }));
}
