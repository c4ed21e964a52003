//! RFC 8881 §10.4.

use vouch_nfs4::op::{NoDelegation, SequenceFlags};

use super::*;

fn read_delegation(fixture: &mut Fixture, peer: &Peer, number: u8) -> Stateid {
    let opened = fixture.open_as(peer, "o", number, share(1, 0), Claim::New, Want::Read).unwrap();
    match opened.delegation {
        Granted::Read(stateid) => stateid,
        other => panic!("no delegation: {other:?}"),
    }
}

fn write_delegation(fixture: &mut Fixture, peer: &Peer, number: u8) -> Stateid {
    let opened = fixture.open_as(peer, "o", number, share(3, 0), Claim::New, Want::Write).unwrap();
    match opened.delegation {
        Granted::Write(stateid) => stateid,
        other => panic!("no delegation: {other:?}"),
    }
}

fn delegated_attributes(
    fixture: &mut Fixture,
    by: Option<&Peer>,
    times: bool,
    now: u64,
) -> Result<Holder, Status> {
    fixture.state.delegated_attributes(&file(1), by.map(|peer| peer.client), times, now)
}

#[test]
fn second_open_without_preference_gets_read_delegation() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    let mut open = |want| fixture.open_as(&peer, "o", 1, share(1, 0), Claim::New, want).unwrap();
    assert_eq!(open(Want::Unstated).delegation, Granted::None);
    assert_eq!(open(Want::No).delegation, Granted::Refused(NoDelegation::NOT_WANTED));
    assert!(matches!(open(Want::Unstated).delegation, Granted::Read(_)));
    assert_eq!(open(Want::Unstated).delegation, Granted::None);
}

#[test]
fn open_for_writing_recalls_read_delegations() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let delegation = read_delegation(&mut fixture, &a, 1);
    assert!(fixture.open(&b, 1, 1, 0).is_ok());
    assert_eq!(fixture.open(&b, 1, 2, 0), Err(Status::DELAY));
    let callbacks = fixture.callbacks();
    assert!(matches!(callbacks[0].op, CallbackOp::Recall { stateid, .. } if stateid == delegation));
    assert_eq!(callbacks[0].sequence.unwrap().session, a.session);
    assert_eq!(fixture.open(&b, 1, 2, 0), Err(Status::DELAY));
    assert!(fixture.callbacks().is_empty());
    fixture.answer(&callbacks[0], Status::OK);
    assert_eq!(fixture.open(&b, 1, 2, 0), Err(Status::DELAY));
    // §10.2.1.
    assert!(
        fixture
            .open_as(&a, "p", 1, share(1, 0), Claim::Delegated(delegation), Want::Unstated)
            .is_ok()
    );
    assert_eq!(
        fixture
            .open_as(&a, "p", 1, share(3, 0), Claim::Delegated(delegation), Want::Unstated)
            .unwrap_err(),
        Status::ACCESS
    );
    fixture.return_delegation(&a, &delegation, 1).unwrap();
    assert!(fixture.open(&b, 1, 2, 0).is_ok());
    let again = fixture.open_as(&a, "o", 1, share(1, 0), Claim::New, Want::Read).unwrap();
    assert!(matches!(again.delegation, Granted::Refused(NoDelegation::Contention(_))));
}

#[test]
fn write_delegation_requires_a_single_client() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let delegation = write_delegation(&mut fixture, &a, 1);
    assert!(fixture.io(&a, &delegation, 1, Io::Write).is_ok());
    assert_eq!(fixture.open(&b, 1, 1, 0), Err(Status::DELAY));
    fixture.return_delegation(&a, &delegation, 1).unwrap();
    fixture.open(&b, 2, 1, 0).unwrap();
    let refused = fixture.open_as(&a, "o", 2, share(3, 0), Claim::New, Want::Write).unwrap();
    assert!(matches!(refused.delegation, Granted::Refused(NoDelegation::Contention(_))));
    let read = read_delegation(&mut fixture, &b, 3);
    assert_eq!(fixture.io(&b, &read, 3, Io::Write), Err(Status::OPENMODE));
}

#[test]
fn changes_without_open_recall_delegations() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    read_delegation(&mut fixture, &a, 1);
    assert_eq!(fixture.recall_for_access(1, &a, AccessWithoutOpen::Name), Ok(()));
    assert_eq!(fixture.recall_for_access(1, &b, AccessWithoutOpen::Read), Ok(()));
    assert!(fixture.callbacks().is_empty());
    for access in
        [AccessWithoutOpen::Change, AccessWithoutOpen::Attributes, AccessWithoutOpen::Name]
    {
        assert_eq!(fixture.recall_for_access(1, &b, access), Err(Status::DELAY));
    }
    assert_eq!(fixture.callbacks().len(), 1);
    write_delegation(&mut fixture, &a, 2);
    assert_eq!(fixture.recall_for_access(2, None, AccessWithoutOpen::Read), Err(Status::DELAY));
}

#[test]
fn no_delegation_during_change_by_other_client() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    for (number, by) in [(1, Some(&b)), (2, None)] {
        assert_eq!(fixture.recall_for_access(number, by, AccessWithoutOpen::Attributes), Ok(()));
        assert_eq!(fixture.recall_for_access(number, &a, AccessWithoutOpen::Attributes), Ok(()));
        let refused =
            fixture.open_as(&a, "o", number, share(1, 0), Claim::New, Want::Read).unwrap();
        assert!(
            matches!(refused.delegation, Granted::Refused(NoDelegation::Contention(_))),
            "{:?}",
            refused.delegation
        );
    }
    fixture.advance(2_000);
    for number in [1, 2] {
        read_delegation(&mut fixture, &a, number);
    }
    assert_eq!(fixture.recall_for_access(3, &a, AccessWithoutOpen::Name), Ok(()));
    assert_eq!(fixture.recall_for_access(3, &b, AccessWithoutOpen::Read), Ok(()));
    read_delegation(&mut fixture, &a, 3);
}

#[test]
fn recall_any_goes_to_largest_holder_near_limit() {
    // §20.6.
    let limits = Limits { delegations_max: 16, ..Limits::default() };
    let mut fixture = Fixture::with_config(StateConfig { limits, ..config() }, &[]);
    let (mut many, mut few) = (fixture.peer("many"), fixture.peer("few"));
    let stateids: Vec<Stateid> =
        (0..12).map(|number| read_delegation(&mut fixture, &many, number)).collect();
    read_delegation(&mut fixture, &few, 100);
    assert!(fixture.callbacks().is_empty(), "no recall below the limit");
    read_delegation(&mut fixture, &few, 101);
    let recall_any_args = |callbacks: &[OutgoingCallback]| match callbacks {
        [
            OutgoingCallback {
                op: CallbackOp::RecallAny { keep }, sequence: Some(sequence), ..
            },
        ] => (sequence.session, *keep),
        other => panic!("{other:?}"),
    };
    let callbacks = fixture.callbacks();
    assert_eq!(recall_any_args(&callbacks), (many.session, 9));
    fixture.answer(&callbacks[0], Status::OK);
    for number in [102, 103] {
        read_delegation(&mut fixture, &few, number);
    }
    assert!(fixture.callbacks().is_empty());
    let refused = fixture.open_as(&few, "o", 104, share(1, 0), Claim::New, Want::Read).unwrap();
    assert!(
        matches!(refused.delegation, Granted::Refused(NoDelegation::Resource(_))),
        "{:?}",
        refused.delegation
    );
    assert!(
        stateids.iter().all(|stateid| fixture.state.test_stateid(many.client, stateid).is_ok())
    );
    for ms in [LEASE_MS / 2, LEASE_MS / 2 + 1] {
        fixture.advance(ms);
        fixture.renew_lease(&mut many).unwrap();
        fixture.renew_lease(&mut few).unwrap();
    }
    fixture.return_delegation(&many, &stateids[0], 0).unwrap();
    read_delegation(&mut fixture, &few, 105);
    assert_eq!(recall_any_args(&fixture.callbacks()), (many.session, 8));
}

#[test]
fn delegation_is_revoked_after_recall_and_holders_lease() {
    // §10.4.6, 18.46.3 and 18.38.
    let (mut fixture, [mut a, mut b]) = Fixture::with_peers(["a", "b"]);
    let delegation = read_delegation(&mut fixture, &a, 1);
    assert_eq!(fixture.open(&b, 1, 2, 0), Err(Status::DELAY));
    fixture.advance(LEASE_MS / 4);
    fixture.renew_lease(&mut a).unwrap();
    // A lease after the recall, the holder may still write what it has cached.
    for ms in [LEASE_MS / 2, LEASE_MS / 2 - 1] {
        fixture.advance(ms);
        fixture.renew_lease(&mut b).unwrap();
        assert_eq!(fixture.open(&b, 1, 2, 0), Err(Status::DELAY));
    }
    fixture.state.take_effects();
    fixture.advance(1);
    let is_revoked_loss = |effect: &StateEffect<Handle>| {
        matches!(effect, StateEffect::Ended { delegation: true, why: Loss::NotReturned, .. })
    };
    assert_eq!(
        fixture.state.take_effects().iter().filter(|effect| is_revoked_loss(effect)).count(),
        1
    );
    fixture.renew_lease(&mut b).unwrap();
    assert!(fixture.open(&b, 1, 2, 0).is_ok());
    assert!(fixture.renew_lease(&mut a).unwrap().contains(SequenceFlags::RECALLABLE_STATE_REVOKED));
    assert_eq!(fixture.state.test_stateid(a.client, &delegation), Status::DELEG_REVOKED);
    assert_eq!(fixture.return_delegation(&a, &delegation, 1), Err(Status::DELEG_REVOKED));
    assert_eq!(fixture.state.free_stateid(a.client, &delegation), Ok(()));
    assert!(
        !fixture.renew_lease(&mut a).unwrap().contains(SequenceFlags::RECALLABLE_STATE_REVOKED)
    );
    assert_eq!(fixture.state.test_stateid(a.client, &delegation), Status::BAD_STATEID);
}

#[test]
fn busy_holder_keeps_recalled_delegation_for_two_leases() {
    let (mut fixture, [mut a, mut b]) = Fixture::with_peers(["a", "b"]);
    read_delegation(&mut fixture, &a, 1);
    fixture.renew_lease(&mut a).unwrap();
    assert_eq!(fixture.open(&b, 1, 2, 0), Err(Status::DELAY));
    let mut reports = Vec::new();
    let mut wait = |fixture: &mut Fixture, ms| {
        fixture.advance(ms);
        reports.extend(fixture.state.take_effects().into_iter().filter_map(
            |effect| match effect {
                StateEffect::RecallOverdue { owner, waited_ms, is_revoked, .. } => {
                    Some((owner.to_vec(), waited_ms, is_revoked))
                }
                _ => None,
            },
        ));
    };
    wait(&mut fixture, LEASE_MS / 2);
    (0..12).for_each(|_| {
        fixture.renew_lease(&mut a).unwrap();
        fixture.renew_lease(&mut b).unwrap();
        wait(&mut fixture, LEASE_MS / 4);
    });
    assert_eq!(
        reports,
        [(b"a".to_vec(), LEASE_MS / 2, false), (b"a".to_vec(), 2 * LEASE_MS, true)]
    );
    assert_eq!(fixture.state.totals().delegations_revoked, 1);
}

#[test]
fn export_without_delegations_grants_none() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    for (want, expected) in [
        (Want::Unstated, Granted::None),
        (Want::Read, Granted::Refused(NoDelegation::Resource(false))),
    ] {
        for _ in 0..2 {
            let call =
                OpenCall { want, may_delegate: false, ..open_call(&peer, b"o", 1, share(1, 0)) };
            assert_eq!(fixture.open_by(&call).unwrap().delegation, expected);
        }
    }
    read_delegation(&mut fixture, &peer, 1);
}

#[test]
fn delegation_ends_with_silent_client_and_needs_callback_channel() {
    let (mut fixture, [a]) = Fixture::with_peers(["a"]);
    read_delegation(&mut fixture, &a, 1);
    fixture.advance(LEASE_MS + 1);
    let mut b = fixture.peer("b");
    assert!(fixture.open(&b, 1, 2, 0).is_ok());
    assert_eq!((fixture.state.totals().delegations, fixture.open_files()), (0, 1));
    fixture.state.connection_closed(b.connection);
    b.connection = fixture.new_connection();
    let opened = fixture.open_as(&b, "o", 2, share(1, 0), Claim::New, Want::Read).unwrap();
    assert!(matches!(opened.delegation, Granted::Refused(NoDelegation::Resource(_))));
}

fn answer_of_holder(size: u64) -> (CallbackAnswer, Result<Holder, Status>) {
    let reported = HolderAttributes { size, change: 9, accessed: None, modified: None };
    let answer = CallbackAnswer::Answered {
        sequence: Status::OK,
        highest_slot: None,
        status: Status::OK,
        attributes: Some(reported),
    };
    (answer, Ok(Holder::Reported(reported)))
}

#[test]
fn answer_of_holder_expires_and_a_slow_holder_is_recalled() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    write_delegation(&mut fixture, &a, 1);
    for (asked, answered) in [(0, 0), (1_000, 1_201)] {
        let pending = delegated_attributes(&mut fixture, Some(&b), false, asked);
        assert_eq!(pending, Ok(Holder::Pending(asked)));
        let (answer, reported) = answer_of_holder(7);
        let callbacks = fixture.callbacks();
        fixture.state.callback_done(callbacks[0].id, answer, answered);
        let late = answered + 999;
        assert_eq!(delegated_attributes(&mut fixture, Some(&b), false, late), reported);
    }
    assert_eq!(delegated_attributes(&mut fixture, Some(&b), false, 2_201), Err(Status::DELAY));
    assert!(matches!(fixture.callbacks()[0].op, CallbackOp::Recall { .. }));
}

#[test]
fn cb_getattr_asks_holder_for_size_and_change() {
    let (mut fixture, [a, b, c]) = Fixture::with_peers(["a", "b", "c"]);
    write_delegation(&mut fixture, &a, 1);
    let query_holder = |fixture: &mut Fixture, by: &Peer, now| {
        let holder = delegated_attributes(fixture, Some(by), false, now);
        if let Ok(Holder::Reported(reported)) = holder {
            fixture.state.use_answer(&file(1), Some(by.client), 5, reported.change);
        }
        holder
    };
    assert_eq!(query_holder(&mut fixture, &a, 0), Ok(Holder::None));
    assert_eq!(query_holder(&mut fixture, &b, 0), Ok(Holder::Pending(0)));
    assert!(fixture.state.has_pending_getattr(&file(1), Some(b.client)));
    assert_eq!(query_holder(&mut fixture, &b, 5), Ok(Holder::Pending(0)));
    let callbacks = fixture.callbacks();
    assert!(matches!(
        callbacks[..],
        [OutgoingCallback { op: CallbackOp::Getattr { times: false, .. }, .. }]
    ));
    let (answered, reported) = answer_of_holder(7);
    fixture.state.callback_done(callbacks[0].id, answered, 0);
    assert_eq!(query_holder(&mut fixture, &b, 10), reported);
    assert!(!fixture.state.has_pending_getattr(&file(1), Some(b.client)));
    assert_eq!(delegated_attributes(&mut fixture, Some(&b), true, 10), Ok(Holder::None));
    // The holder may have written since. A call from before the question takes its answer too.
    assert_eq!(query_holder(&mut fixture, &b, 10), Ok(Holder::Pending(10)));
    let (answered, reported) = answer_of_holder(8);
    let callbacks = fixture.callbacks();
    fixture.state.callback_done(callbacks[0].id, answered, 11);
    assert_eq!(query_holder(&mut fixture, &c, 9), reported);
    assert_eq!(query_holder(&mut fixture, &c, 12), Ok(Holder::Pending(12)));
    // It reports 9 after each change.
    let shown = |fixture: &mut Fixture| fixture.state.use_answer(&file(1), Some(c.client), 5, 9);
    assert_eq!((shown(&mut fixture), shown(&mut fixture)), (11, 12));
    let callbacks = fixture.callbacks();
    fixture.answer(&callbacks[0], Status::BADHANDLE);
    assert!(matches!(fixture.callbacks()[0].op, CallbackOp::Recall { .. }));
}

fn open_extended(
    fixture: &mut Fixture,
    peer: &Peer,
    share: Share,
    extensions: DelegationExtensions,
) -> Opened {
    let call = OpenCall { want: Want::Any, extensions, ..open_call(peer, b"o", 1, share) };
    fixture.open_by(&call).unwrap()
}

#[test]
fn delegation_replaces_open_stateid_on_request() {
    // RFC 9754 §4.
    let extensions = DelegationExtensions { for_open: true, times: false };
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let opened = open_extended(&mut fixture, &a, share(3, 0), extensions);
    let Granted::Write(delegation) = opened.delegation else { panic!("{opened:?}") };
    assert_eq!((opened.stateid, opened.extensions), (Stateid::ANONYMOUS, extensions));
    assert!(fixture.io(&a, &delegation, 1, Io::Write).is_ok());
    assert_eq!(fixture.open_files(), 1);
    assert_eq!(fixture.open(&b, 1, 1, 0), Err(Status::DELAY));
    let open = fixture
        .open_as(&a, "o", 1, share(3, 0), Claim::Delegated(delegation), Want::Unstated)
        .unwrap()
        .stateid;
    fixture.return_delegation(&a, &delegation, 1).unwrap();
    assert!(fixture.io(&a, &open, 1, Io::Write).is_ok());
    assert!(fixture.open(&b, 1, 1, 0).is_ok());
    let opened = open_extended(&mut fixture, &b, share(1, 0), extensions);
    assert!(
        matches!(opened.delegation, Granted::Refused(_))
            && !opened.extensions.for_open
            && !opened.stateid.is_special()
    );
}

#[test]
fn existing_or_denying_open_is_kept_with_delegation() {
    // RFC 9754 §4; RFC 8881 §9.7.
    for (before, deny) in [(false, 2), (true, 0)] {
        let (mut fixture, [a]) = Fixture::with_peers(["a"]);
        let existing_open = before.then(|| {
            fixture.open_as(&a, "o", 1, share(3, 0), Claim::New, Want::No).unwrap().stateid
        });
        let opened = open_extended(
            &mut fixture,
            &a,
            share(3, deny),
            DelegationExtensions { for_open: true, times: false },
        );
        assert!(matches!(opened.delegation, Granted::Write(_)) && !opened.extensions.for_open);
        assert!(
            existing_open.is_none_or(|existing_open| existing_open.other == opened.stateid.other)
                && !opened.stateid.is_special()
        );
    }
}

#[test]
fn timestamp_delegation_lets_only_its_holder_set_times() {
    // RFC 9754 §5.
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let opened = open_extended(
        &mut fixture,
        &a,
        share(3, 0),
        DelegationExtensions { for_open: false, times: true },
    );
    let Granted::Write(delegation) = opened.delegation else { panic!("{opened:?}") };
    assert!(opened.extensions.times);
    let check_keeps_times = |fixture: &mut Fixture, peer: &Peer, stateid| {
        fixture.state.check_times_delegation(Some(peer.client), stateid, &file(1), true, 0)
    };
    assert_eq!(check_keeps_times(&mut fixture, &a, &delegation), Ok(()));
    assert_eq!(check_keeps_times(&mut fixture, &b, &delegation), Err(Status::BAD_STATEID));
    assert_eq!(check_keeps_times(&mut fixture, &a, &opened.stateid), Err(Status::BAD_STATEID));
    assert_eq!(delegated_attributes(&mut fixture, Some(&b), true, 0), Ok(Holder::Pending(0)));
    assert!(matches!(fixture.callbacks()[0].op, CallbackOp::Getattr { times: true, .. }));
    let plain = write_delegation(&mut fixture, &a, 2);
    assert_eq!(
        fixture.state.check_times_delegation(Some(a.client), &plain, &file(2), true, 0),
        Err(Status::BAD_STATEID)
    );
}

#[test]
fn unanswered_cb_getattr_recalls_delegation() {
    // §10.4.3.
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    write_delegation(&mut fixture, &a, 1);
    assert_eq!(delegated_attributes(&mut fixture, Some(&b), false, 0), Ok(Holder::Pending(0)));
    fixture.callbacks();
    let late = 60_000;
    assert_eq!(delegated_attributes(&mut fixture, Some(&b), false, late), Err(Status::DELAY));
    assert!(
        fixture.callbacks().iter().any(|callback| matches!(callback.op, CallbackOp::Recall { .. }))
    );
    // GETATTR of 4.0 names no client (RFC 7530 §10.4.3); Linux sends one along with DELEGRETURN.
    assert_eq!(delegated_attributes(&mut fixture, None, false, late), Ok(Holder::None));
    assert_eq!(delegated_attributes(&mut fixture, Some(&b), false, late), Err(Status::DELAY));
}

#[test]
fn directory_delegation_allows_no_io_and_is_revoked() {
    let (mut fixture, [mut a, b]) = Fixture::with_peers(["a", "b"]);
    let handle = fixture.handle.clone();
    let delegation =
        fixture.state.delegate_directory(&directory_call(&a, 1), handle.clone(), 0).unwrap();
    assert_eq!(fixture.io(&a, &delegation, 1, Io::Read), Err(Status::BAD_STATEID));
    assert_eq!(
        fixture
            .open_as(&a, "o", 1, share(1, 0), Claim::Delegated(delegation), Want::Unstated)
            .unwrap_err(),
        Status::BAD_STATEID
    );
    let change = |fixture: &mut Fixture, by: &Peer| {
        fixture.recall_for_access(1, by, AccessWithoutOpen::Name)
    };
    assert_eq!(change(&mut fixture, &a), Ok(()));
    assert!(fixture.callbacks().is_empty());
    assert_eq!(change(&mut fixture, &b), Err(Status::DELAY));
    let callbacks = fixture.callbacks();
    assert!(matches!(callbacks[0].op, CallbackOp::Recall { stateid, .. } if stateid == delegation));
    fixture.answer(&callbacks[0], Status::OK);
    // The holder keeps its lease, and does not return the delegation.
    for _ in 0..5 {
        fixture.advance(LEASE_MS / 2);
        fixture.renew_lease(&mut a).unwrap();
    }
    assert_eq!(change(&mut fixture, &b), Ok(()));
    assert_eq!(fixture.state.totals().delegations_revoked, 1);
    assert_eq!(fixture.state.totals().directory_delegations, 0);
    assert_eq!(fixture.state.test_stateid(a.client, &delegation), Status::DELEG_REVOKED);
}

#[test]
fn client_with_many_directories_leaves_room_to_others() {
    let mut fixture = Fixture::with_limits(|limits| limits.directory_delegations_max = 40);
    let [many, few] = ["many", "few"].map(|name| fixture.peer(name));
    let mut held = |peer: &Peer, from: u8| {
        let handle = fixture.handle.clone();
        let granted = |number: &u8| {
            let call = directory_call(peer, *number);
            fixture.state.delegate_directory(&call, handle.clone(), 0).is_some()
        };
        (from..from + 60).filter(granted).count()
    };
    assert_eq!(held(&many, 0), 32);
    assert!(held(&few, 60) >= 6);
    let opened = fixture.open_as(&few, "o", 1, share(1, 0), Claim::New, Want::Read).unwrap();
    assert!(matches!(opened.delegation, Granted::Read(_)), "files have room of their own");
}
