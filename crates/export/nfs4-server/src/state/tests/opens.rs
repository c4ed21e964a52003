//! RFC 8881 §8.2, 9.7, 18.2, 18.16, 18.18, 18.38, 18.48.

use vouch_nfs4::StateSeq;

use super::quota::{address, peer_from};
use super::*;

#[test]
fn second_open_upgrades_the_first() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    let first = fixture.open(&peer, 1, 1, 0).unwrap();
    assert_eq!(fixture.io(&peer, &first, 1, Io::Write), Err(Status::OPENMODE));
    let second = fixture.open(&peer, 1, 2, 0).unwrap();
    assert_eq!((second.other, second.seq), (first.other, StateSeq(2)));
    assert!(fixture.io(&peer, &second, 1, Io::Write).is_ok());
    assert_eq!(fixture.io(&peer, &first, 1, Io::Read), Err(Status::OLD_STATEID));
    assert_eq!(
        fixture.io(&peer, &Stateid { seq: StateSeq(3), ..first }, 1, Io::Read),
        Err(Status::BAD_STATEID)
    );
    assert!(fixture.io(&peer, &Stateid { seq: StateSeq(0), ..first }, 1, Io::Read).is_ok());
    assert_eq!(fixture.io(&peer, &second, 2, Io::Read), Err(Status::BAD_STATEID));
    assert_eq!(fixture.open_files(), 1);
    assert_eq!(fixture.close(&peer, &second, 1), Ok(Stateid::INVALID));
    assert_eq!(fixture.io(&peer, &second, 1, Io::Read), Err(Status::BAD_STATEID));
    assert_eq!(fixture.open_files(), 0);
}

#[test]
fn share_reservations_deny_conflicting_opens_and_io() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let open = fixture.open(&a, 1, 1, 2).unwrap();
    assert_eq!(fixture.open(&b, 1, 2, 0), Err(Status::SHARE_DENIED));
    assert_eq!(fixture.open(&b, 1, 1, 1), Err(Status::SHARE_DENIED));
    assert!(fixture.open(&b, 1, 1, 0).is_ok());
    assert_eq!(fixture.open(&a, 1, 3, 2), Err(Status::SHARE_DENIED));
    assert!(fixture.open(&a, 1, 1, 2).is_ok());
    assert_eq!(
        fixture.open_as(&a, "other", 1, share(2, 0), Claim::New, Want::Unstated).unwrap_err(),
        Status::SHARE_DENIED
    );
    // §9.1.2.
    assert_eq!(fixture.io(&b, &Stateid::ANONYMOUS, 1, Io::Write), Err(Status::LOCKED));
    assert_eq!(fixture.io(&b, &Stateid::ANONYMOUS, 1, Io::Read), Ok(IoGrant::Anonymous));
    assert_eq!(fixture.io(&b, &Stateid::CURRENT, 1, Io::Read), Err(Status::BAD_STATEID));
    assert!(fixture.io(&b, &open, 1, Io::Read).is_err(), "stateid of another client");
}

#[test]
fn open_downgrade_returns_to_earlier_share() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    fixture.open(&a, 1, 1, 0).unwrap();
    let open = fixture.open(&a, 1, 2, 2).unwrap();
    let mut downgrade =
        |stateid: &Stateid, to| fixture.state.downgrade(Some(a.client), stateid, &file(1), to, 0);
    assert_eq!(downgrade(&open, share(2, 0)), Err(Status::INVAL));
    assert_eq!(downgrade(&open, share(3, 3)), Err(Status::INVAL));
    let open = downgrade(&open, share(1, 0)).unwrap();
    assert_eq!(open.seq, StateSeq(3));
    assert_eq!(fixture.io(&a, &open, 1, Io::Write), Err(Status::OPENMODE));
    assert!(fixture.open(&b, 1, 3, 0).is_ok());
}

#[test]
fn open_with_locks_is_not_closed() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    let open = fixture.open(&peer, 1, 3, 0).unwrap();
    let lock = fixture.lock(&peer, &open, "l", 1, (0, 10), Mode::Exclusive).unwrap();
    assert_eq!(fixture.close(&peer, &open, 1), Err(Status::LOCKS_HELD));
    assert_eq!(fixture.state.free_stateid(peer.client, &lock), Err(Status::LOCKS_HELD));
    assert_eq!(fixture.state.free_stateid(peer.client, &open), Err(Status::LOCKS_HELD));
    assert!(fixture.io(&peer, &lock, 1, Io::Write).is_ok());
    let lock = fixture.unlock(&peer, &lock, 1, (0, u64::MAX)).unwrap();
    assert_eq!(fixture.state.test_stateid(peer.client, &lock), Status::OK);
    assert_eq!(fixture.state.free_stateid(peer.client, &lock), Ok(()));
    assert_eq!(fixture.state.test_stateid(peer.client, &lock), Status::BAD_STATEID);
    assert_eq!(fixture.state.test_stateid(peer.client, &Stateid::ANONYMOUS), Status::BAD_STATEID);
    assert!(fixture.close(&peer, &open, 1).is_ok());
    let totals = fixture.state.totals();
    assert_eq!((totals.opens, totals.locks), (0, 0));
}

fn take_ended(fixture: &mut Fixture) -> Vec<(bool, Loss)> {
    let effects = fixture.state.take_effects();
    let ended = effects.iter().filter_map(|effect| match effect {
        StateEffect::Ended { delegation, why, .. } => Some((*delegation, *why)),
        _ => None,
    });
    ended.collect()
}

#[test]
fn ended_open_is_reported_with_its_reason() {
    let (mut fixture, [closing, mut silent, revoked]) =
        Fixture::with_peers(["closing", "silent", "revoked"]);
    let open = fixture.open(&closing, 1, 3, 0).unwrap();
    fixture.open(&closing, 1, 1, 0).unwrap();
    fixture.close(&closing, &Stateid { seq: StateSeq(0), ..open }, 1).unwrap();
    assert_eq!(take_ended(&mut fixture), [], "closed or upgraded");
    fixture.open(&revoked, 2, 1, 0).unwrap();
    fixture.open(&revoked, 3, 1, 0).unwrap();
    fixture.state.revoke_client(revoked.id);
    assert_eq!(take_ended(&mut fixture), [(false, Loss::Revoked), (false, Loss::Revoked)]);
    fixture.open(&closing, 4, 1, 0).unwrap();
    fixture.reclaiming_peer("closing", 2);
    assert_eq!(take_ended(&mut fixture), [(false, Loss::Restarted)]);
    fixture.open(&silent, 5, 1, 2).unwrap();
    fixture.advance(LEASE_MS / 2);
    fixture.renew_lease(&mut silent).unwrap();
    fixture.advance(LEASE_MS / 2);
    let mut busy = fixture.peer("busy");
    assert_eq!(fixture.open(&busy, 5, 2, 0), Err(Status::SHARE_DENIED));
    fixture.advance(LEASE_MS / 2);
    fixture.renew_lease(&mut busy).unwrap();
    assert_eq!(take_ended(&mut fixture), []);
    assert!(fixture.open(&busy, 5, 2, 0).is_ok());
    assert_eq!(take_ended(&mut fixture), [(false, Loss::Expired)]);
}

fn open_until_refused(
    fixture: &mut Fixture,
    peer: &Peer,
    numbers: std::ops::RangeInclusive<u8>,
) -> usize {
    numbers.into_iter().take_while(|&number| fixture.open(peer, number, 1, 0).is_ok()).count()
}

#[test]
fn opens_of_client_and_source_leave_room_for_others() {
    let mut fixture = Fixture::with_limits(|limits| limits.opens_per_client_max = 3);
    let (a, b) = (fixture.peer("a"), fixture.peer("b"));
    assert_eq!(open_until_refused(&mut fixture, &a, 1..=4), 3);
    assert_eq!(fixture.open(&a, 4, 1, 0), Err(Status::NOSPC));
    assert!(fixture.open(&b, 4, 1, 0).is_ok());
    assert_eq!(fixture.open_files(), 4);

    let mut fixture = Fixture::with_limits(|limits| limits.opens_max = 100);
    let from = |fixture: &mut Fixture, last, name| peer_from(fixture, address(last), name).unwrap();
    let (a, other, b) = (
        from(&mut fixture, 1, "a"),
        from(&mut fixture, 1, "other name"),
        from(&mut fixture, 2, "b"),
    );
    assert_eq!([&a, &other].map(|peer| open_until_refused(&mut fixture, peer, 1..=100)), [80, 0]);
    assert_eq!(
        fixture.open(&other, 90, 1, 0),
        Err(Status::NOSPC),
        "the same source under another name"
    );
    assert!(fixture.open(&a, 1, 2, 0).is_ok());
    assert_eq!(open_until_refused(&mut fixture, &b, 1..=100), 16);
    let c = from(&mut fixture, 3, "c");
    assert!(fixture.open(&c, 1, 1, 0).is_ok());
    assert_eq!(fixture.open(&a, 90, 1, 0), Err(Status::NOSPC));
}

#[test]
fn silent_client_with_most_opens_is_evicted_first() {
    let mut fixture = Fixture::with_limits(|limits| limits.opens_max = 100);
    let (a, mut b) = (
        peer_from(&mut fixture, address(1), "a").unwrap(),
        peer_from(&mut fixture, address(2), "b").unwrap(),
    );
    let laptop = peer_from(&mut fixture, address(3), "laptop").unwrap();
    assert!(fixture.open(&laptop, 120, 1, 0).is_ok());
    assert!(open_until_refused(&mut fixture, &a, 1..=110) > 70);
    fixture.advance(LEASE_MS / 2);
    fixture.renew_lease(&mut b).unwrap();
    fixture.advance(LEASE_MS / 2 + 1);
    assert!(fixture.state.totals().opens > 70);
    assert!(open_until_refused(&mut fixture, &b, 1..=110) > 70);
    assert!(
        fixture.state.clients.get(a.client).is_none()
            && fixture.state.clients.get(laptop.client).is_some()
    );
    fixture.advance(limits::EVICTION_INTERVAL_MS);
    assert_eq!(fixture.open(&b, 111, 1, 0), Err(Status::NOSPC));
    assert!(fixture.state.clients.get(laptop.client).is_some());
}

#[test]
fn futile_eviction_scan_does_not_block_other_clients() {
    let mut fixture = Fixture::with_limits(|limits| limits.opens_max = 100);
    let from = |fixture: &mut Fixture, last, name| peer_from(fixture, address(last), name).unwrap();
    let (mut a, mut b, laptop) =
        (from(&mut fixture, 1, "a"), from(&mut fixture, 2, "b"), from(&mut fixture, 3, "laptop"));
    assert!((1..=30).all(|number| fixture.open(&laptop, number, 1, 0).is_ok()));
    fixture.advance(LEASE_MS / 2);
    fixture.renew_lease(&mut a).unwrap();
    fixture.renew_lease(&mut b).unwrap();
    fixture.advance(LEASE_MS / 2 + 1);
    assert!(open_until_refused(&mut fixture, &a, 1..=50) > 40);
    let first_refused =
        |fixture: &mut Fixture| (60..=110).find(|&number| fixture.open(&a, number, 1, 0).is_err());
    assert!(first_refused(&mut fixture).is_some());
    assert!((0..100).all(|_| fixture.open(&a, 120, 1, 0) == Err(Status::NOSPC)));
    assert!(fixture.state.clients.get(laptop.client).is_some());
    let many = open_until_refused(&mut fixture, &b, 1..=50);
    assert!(
        many > 20 && fixture.state.clients.get(laptop.client).is_none(),
        "the silent client was evicted: {many}"
    );
}

#[test]
fn slow_open_does_not_expire_its_own_client() {
    // RFC 7530 §9.5.
    let mut fixture = Fixture::with_limits(|limits| limits.opens_max = 10);
    let peer = super::v40::v40_client(&mut fixture, "a");
    let count = (1..=20).take_while(|&number| fixture.open(&peer, number, 1, 0).is_ok()).count();
    let call = open_call(&peer, b"owner", 100, share(1, 0));
    let plan = fixture.state.check_open(&call, fixture.now).unwrap();
    fixture.advance(LEASE_MS + 1);
    let handle = fixture.handle.clone();
    assert_eq!(fixture.state.open(&call, handle, plan.union, fixture.now), Err(Status::RESOURCE));
    assert_eq!(fixture.state.totals().opens, count);
}

#[test]
fn open_quota_per_file_leaves_room_for_others() {
    let mut fixture = Fixture::new();
    let from = |fixture: &mut Fixture, last, name| peer_from(fixture, address(last), name).unwrap();
    let (a, same, b) = (
        from(&mut fixture, 1, "a"),
        from(&mut fixture, 1, "same host"),
        from(&mut fixture, 2, "b"),
    );
    let open_until_refused = |fixture: &mut Fixture, peer: &Peer, most| {
        let open = |number: &u32| {
            fixture
                .open_as(peer, &number.to_string(), 1, share(1, 0), Claim::New, Want::Unstated)
                .is_ok()
        };
        (0..most).take_while(open).count()
    };
    let max = limits::OPENS_PER_FILE_MAX;
    let count = open_until_refused(&mut fixture, &a, max as u32 + 1);
    assert!((max / 5 * 4..=max / 5 * 4 + 4).contains(&count), "{count}");
    assert_eq!(open_until_refused(&mut fixture, &same, 100), 0);
    assert_eq!(open_until_refused(&mut fixture, &b, 1000), 1000);
    let opened = fixture.open_as(&a, "one more", 1, share(1, 0), Claim::New, Want::Unstated);
    assert_eq!(opened.map(|opened| opened.stateid), Err(Status::NOSPC));
}

#[test]
fn commit_check_examines_few_opens() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let many = 1000;
    for number in 0..many {
        fixture.open_as(&a, &number.to_string(), 1, share(1, 0), Claim::New, Want::No).unwrap();
    }
    let visited = |fixture: &Fixture, client: Option<ClientKey>| {
        let mut visited = 0;
        assert!(
            fixture
                .state
                .open_to_write(client, &file(1), |_| {
                    visited += 1;
                    false
                })
                .is_none()
        );
        visited
    };
    assert_eq!((visited(&fixture, Some(a.client)), visited(&fixture, None)), (0, 0));
    for number in 0..many {
        fixture.open_as(&a, &number.to_string(), 1, share(2, 0), Claim::New, Want::No).unwrap();
    }
    assert_eq!(visited(&fixture, Some(b.client)), 0);
    assert!(
        visited(&fixture, Some(a.client)) <= limits::OPENER_SCAN_MAX
            && visited(&fixture, None) <= limits::OPENER_SCAN_MAX
    );
    fixture.open(&b, 1, 2, 0).unwrap();
    assert!(
        fixture.state.open_to_write(Some(b.client), &file(1), |_| true).is_some()
            && fixture.state.writes_to(b.client, &file(1))
    );
    assert!(
        fixture.state.open_to_write(Some(b.client), &file(1 + OTHER_EXPORT), |_| true).is_none(),
        "not open through the other export"
    );
}

#[test]
fn open_claims_are_checked() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    let mut open = |claim| {
        fixture
            .open_as(&peer, "o", 1, share(1, 0), claim, Want::Unstated)
            .map(|opened| opened.stateid)
    };
    assert_eq!(open(Claim::DelegatedPrevious), Err(Status::NOTSUPP));
    assert_eq!(open(Claim::Previous(vouch_nfs4::op::DelegationType::None)), Err(Status::NO_GRACE));
    assert_eq!(open(Claim::Delegated(Stateid::ANONYMOUS)), Err(Status::BAD_STATEID));
    // §18.51.3.
    let early = fixture.reclaiming_peer("b", 1);
    assert_eq!(fixture.open(&early, 1, 1, 0), Err(Status::GRACE));
    fixture.state.reclaim_complete(early.client, true).unwrap();
    assert_eq!(fixture.open(&early, 1, 1, 0), Err(Status::GRACE));
    fixture.state.reclaim_complete(early.client, false).unwrap();
    assert!(fixture.open(&early, 1, 1, 0).is_ok());
    assert_eq!(fixture.state.reclaim_complete(early.client, false), Err(Status::COMPLETE_ALREADY));
}

#[test]
fn copies_report_progress_and_are_cancelled() {
    // RFC 7862 §15.8 and 15.9.
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    let (key, stateid) = fixture.state.copy_begin(peer.client, &file(1), TERMS).unwrap();
    assert!(fixture.state.note_copied(key, 10));
    let progress = fixture.state.copy_status(peer.client, &stateid, &file(1), 0).unwrap();
    assert_eq!(progress, CopyProgress { copied: 10, end: None });
    fixture.state.copy_cancel(peer.client, &stateid, &file(1), 0).unwrap();
    assert!(!fixture.state.note_copied(key, 20));
    let (key, stateid) = fixture.state.copy_begin(peer.client, &file(1), TERMS).unwrap();
    fixture.state.copy_done(key, vouch_nfs4::cb::OffloadInfo::Failed(Status::NOSPC, 5), 0);
    let progress = fixture.state.copy_status(peer.client, &stateid, &file(1), 0).unwrap();
    assert_eq!(progress, CopyProgress { copied: 5, end: Some(Status::NOSPC) });
    let callbacks = fixture.callbacks();
    assert!(
        matches!(callbacks[0].op, CallbackOp::Offload { stateid: reported, .. } if reported == stateid)
    );
    fixture.answer(&callbacks[0], Status::OK);
    assert_eq!(fixture.state.test_stateid(peer.client, &stateid), Status::BAD_STATEID);
    assert_eq!(fixture.state.totals().copies, 0);
}
