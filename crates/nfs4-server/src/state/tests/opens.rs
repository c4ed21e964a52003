//! OPEN, OPEN_DOWNGRADE, CLOSE, I/O by stateids, TEST_STATEID, FREE_STATEID (RFC 8881, sections
//! 8.2, 9.7, 18.2, 18.16, 18.18, 18.38, 18.48).

use vouch_nfs4::StateSeq;

use super::quota::{address, peer};
use super::*;

fn io(world: &mut World, peer: &Peer, stateid: &Stateid, number: u8, io: Io) -> Result<IoGrant<Handle>, Status> {
    world.state.io(Some(peer.client), stateid, &file(number), io, world.now)
}

#[test]
fn a_second_open_widens_the_first() {
    // Section 9.9.
    let mut world = World::new();
    let peer = world.peer("a");
    let first = world.open(&peer, 1, 1, 0).unwrap();
    assert_eq!(io(&mut world, &peer, &first, 1, Io::Write), Err(Status::OPENMODE));
    let second = world.open(&peer, 1, 2, 0).unwrap();
    assert_eq!((second.other, second.seq), (first.other, StateSeq(2)));
    assert!(io(&mut world, &peer, &second, 1, Io::Write).is_ok());
    // Section 8.2.2.
    assert_eq!(io(&mut world, &peer, &first, 1, Io::Read), Err(Status::OLD_STATEID));
    assert_eq!(io(&mut world, &peer, &Stateid { seq: StateSeq(3), ..first }, 1, Io::Read), Err(Status::BAD_STATEID));
    assert!(io(&mut world, &peer, &Stateid { seq: StateSeq(0), ..first }, 1, Io::Read).is_ok());
    // Of another file.
    assert_eq!(io(&mut world, &peer, &second, 2, Io::Read), Err(Status::BAD_STATEID));
    assert_eq!(world.open_files(), 1);
    assert_eq!(world.state.close(Some(peer.client), &second, &file(1), 0), Ok(Stateid::INVALID));
    assert_eq!(io(&mut world, &peer, &second, 1, Io::Read), Err(Status::BAD_STATEID));
    assert_eq!(world.open_files(), 0);
}

#[test]
fn what_another_denies_is_denied() {
    // Section 9.7.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let open = world.open(&a, 1, 1, 2).unwrap();
    assert_eq!(world.open(&b, 1, 2, 0), Err(Status::SHARE_DENIED));
    assert_eq!(world.open(&b, 1, 1, 1), Err(Status::SHARE_DENIED));
    assert!(world.open(&b, 1, 1, 0).is_ok());
    // Its own denial stands in the owner's way, too: what counts is the state of the file. So does it
    // in that of another owner of the same client.
    assert_eq!(world.open(&a, 1, 3, 2), Err(Status::SHARE_DENIED));
    assert!(world.open(&a, 1, 1, 2).is_ok());
    assert_eq!(world.open_as(&a, "other", 1, share(2, 0), Claim::New, Want::Unstated).unwrap_err(), Status::SHARE_DENIED);
    // Section 9.1.2: nor may writes pass without an open.
    assert_eq!(io(&mut world, &b, &Stateid::ANONYMOUS, 1, Io::Write), Err(Status::LOCKED));
    assert_eq!(io(&mut world, &b, &Stateid::ANONYMOUS, 1, Io::Read), Ok(IoGrant::Anonymous));
    assert_eq!(io(&mut world, &b, &Stateid::CURRENT, 1, Io::Read), Err(Status::BAD_STATEID));
    assert!(io(&mut world, &b, &open, 1, Io::Read).is_err(), "of another client");
}

#[test]
fn a_downgrade_goes_back_to_what_was_opened() {
    // Section 18.18.3.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    world.open(&a, 1, 1, 0).unwrap();
    let open = world.open(&a, 1, 2, 2).unwrap();
    let mut down = |stateid: &Stateid, to| world.state.downgrade(Some(a.client), stateid, &file(1), to, 0);
    assert_eq!(down(&open, share(2, 0)), Err(Status::INVAL));
    assert_eq!(down(&open, share(3, 3)), Err(Status::INVAL));
    let open = down(&open, share(1, 0)).unwrap();
    assert_eq!(open.seq, StateSeq(3));
    assert_eq!(io(&mut world, &a, &open, 1, Io::Write), Err(Status::OPENMODE));
    assert!(world.open(&b, 1, 3, 0).is_ok());
}

#[test]
fn locks_held_keep_an_open() {
    // Sections 18.2.3, 18.38.3 and 18.48.3.
    let mut world = World::new();
    let peer = world.peer("a");
    let open = world.open(&peer, 1, 3, 0).unwrap();
    let lock = world.lock(&peer, &open, "l", 1, (0, 10), Mode::Exclusive).unwrap();
    let client = Some(peer.client);
    assert_eq!(world.state.close(client, &open, &file(1), 0), Err(Status::LOCKS_HELD));
    assert_eq!(world.state.free_stateid(peer.client, &lock), Err(Status::LOCKS_HELD));
    assert_eq!(world.state.free_stateid(peer.client, &open), Err(Status::LOCKS_HELD));
    assert!(io(&mut world, &peer, &lock, 1, Io::Write).is_ok());
    let lock = world.state.unlock(client, &lock, &file(1), Range::new(0, u64::MAX).unwrap(), 0).unwrap();
    assert_eq!(world.state.test_stateid(peer.client, &lock), Status::OK);
    assert_eq!(world.state.free_stateid(peer.client, &lock), Ok(()));
    assert_eq!(world.state.test_stateid(peer.client, &lock), Status::BAD_STATEID);
    assert_eq!(world.state.test_stateid(peer.client, &Stateid::ANONYMOUS), Status::BAD_STATEID);
    assert!(world.state.close(client, &open, &file(1), 0).is_ok());
    let totals = world.state.totals();
    assert_eq!((totals.opens, totals.locks), (0, 0));
}

/// Why what was lost since the last look was, and whether it was a delegation.
fn lost(world: &mut World) -> Vec<(bool, Loss)> {
    let effects = world.state.take_effects();
    let lost = effects.iter().filter_map(|effect| match effect {
        StateEffect::Lost { delegation, why, .. } => Some((*delegation, *why)),
        _ => None,
    });
    lost.collect()
}

#[test]
fn an_open_that_its_client_does_not_close_is_lost_and_it_is_said_why() {
    let mut world = World::new();
    let (closing, mut silent, revoked) = (world.peer("closing"), world.peer("silent"), world.peer("revoked"));
    let open = world.open(&closing, 1, 3, 0).unwrap();
    world.open(&closing, 1, 1, 0).unwrap();
    world.state.close(Some(closing.client), &Stateid { seq: StateSeq(0), ..open }, &file(1), world.now).unwrap();
    assert_eq!(lost(&mut world), [], "closed, or widened");
    world.open(&revoked, 2, 1, 0).unwrap();
    world.open(&revoked, 3, 1, 0).unwrap();
    world.state.revoke_client(revoked.id);
    assert_eq!(lost(&mut world), [(false, Loss::Revoked), (false, Loss::Revoked)]);
    // The same client in another life.
    world.open(&closing, 4, 1, 0).unwrap();
    world.returning("closing", 2);
    assert_eq!(lost(&mut world), [(false, Loss::Restarted)]);
    // Silent, and in somebody's way once its lease has run out.
    world.open(&silent, 5, 1, 2).unwrap();
    world.pass(LEASE_MS / 2);
    world.beat(&mut silent).unwrap();
    world.pass(LEASE_MS / 2);
    let mut busy = world.peer("busy");
    assert_eq!(world.open(&busy, 5, 2, 0), Err(Status::SHARE_DENIED));
    world.pass(LEASE_MS / 2);
    world.beat(&mut busy).unwrap();
    assert_eq!(lost(&mut world), []);
    assert!(world.open(&busy, 5, 2, 0).is_ok());
    assert_eq!(lost(&mut world), [(false, Loss::Expired)]);
}

#[test]
fn a_client_that_opens_too_much_is_stopped() {
    let mut config = config();
    config.limits.opens_per_client_max = 3;
    let mut world = World::with(config, &[]);
    let (a, b) = (world.peer("a"), world.peer("b"));
    (1..=3).for_each(|number| assert!(world.open(&a, number, 1, 0).is_ok()));
    assert_eq!(world.open(&a, 4, 1, 0), Err(Status::NOSPC));
    assert!(world.open(&b, 4, 1, 0).is_ok());
    assert_eq!(world.open_files(), 4);
}

#[test]
fn source_that_opens_all_it_can_leaves_room_for_others() {
    let mut config = config();
    config.limits.opens_max = 100;
    let mut world = World::with(config, &[]);
    let from = |world: &mut World, last, name| peer(world, address(last), name).unwrap();
    let (a, other, b) = (from(&mut world, 1, "a"), from(&mut world, 1, "other name"), from(&mut world, 2, "b"));
    let greedy = |world: &mut World, peer: &Peer| (1..=100).take_while(|&number| world.open(peer, number, 1, 0).is_ok()).count();
    // Four fifths for one source, whatever names its clients have.
    assert_eq!(greedy(&mut world, &a), 80);
    assert_eq!(greedy(&mut world, &other), 0);
    assert_eq!(world.open(&other, 90, 1, 0), Err(Status::NOSPC), "another name is no other host");
    // What is open can be opened once more.
    assert!(world.open(&a, 1, 2, 0).is_ok());
    assert_eq!(greedy(&mut world, &b), 16);
    let c = from(&mut world, 3, "c");
    assert!(world.open(&c, 1, 1, 0).is_ok());
    assert_eq!(world.open(&a, 90, 1, 0), Err(Status::NOSPC));
}

#[test]
fn silent_clients_make_room_for_opens_and_whoever_holds_the_most_first() {
    let mut config = config();
    config.limits.opens_max = 100;
    let mut world = World::with(config, &[]);
    let (a, mut b) = (peer(&mut world, address(1), "a").unwrap(), peer(&mut world, address(2), "b").unwrap());
    let laptop = peer(&mut world, address(3), "laptop").unwrap();
    assert!(world.open(&laptop, 120, 1, 0).is_ok());
    let greedy = |world: &mut World, peer: &Peer, from| (from..=110).take_while(|&number| world.open(peer, number, 1, 0).is_ok()).count();
    assert!(greedy(&mut world, &a, 1) > 70);
    world.pass(LEASE_MS / 2);
    world.beat(&mut b).unwrap();
    world.pass(LEASE_MS / 2 + 1);
    // Whose lease has ended keeps what it has as long as nobody needs it, and no longer; who holds
    // little, longer.
    assert!(world.state.totals().opens > 70);
    assert!(greedy(&mut world, &b, 1) > 70);
    assert!(world.state.clients.get(a.client).is_none() && world.state.clients.get(laptop.client).is_some());
    // Who holds much himself ends nobody's.
    world.pass(limits::EVICTION_INTERVAL_MS);
    assert_eq!(world.open(&b, 111, 1, 0), Err(Status::NOSPC));
    assert!(world.state.clients.get(laptop.client).is_some());
}

#[test]
fn who_looks_for_room_in_vain_keeps_nobody_else_from_it() {
    let mut config = config();
    config.limits.opens_max = 100;
    let mut world = World::with(config, &[]);
    let from = |world: &mut World, last, name| peer(world, address(last), name).unwrap();
    let (mut a, mut b, laptop) = (from(&mut world, 1, "a"), from(&mut world, 2, "b"), from(&mut world, 3, "laptop"));
    assert!((1..=30).all(|number| world.open(&laptop, number, 1, 0).is_ok()));
    world.pass(LEASE_MS / 2);
    world.beat(&mut a).unwrap();
    world.beat(&mut b).unwrap();
    world.pass(LEASE_MS / 2 + 1);
    let greedy = |world: &mut World, peer: &Peer| (1..=50).take_while(|&number| world.open(peer, number, 1, 0).is_ok()).count();
    assert!(greedy(&mut world, &a) > 40);
    let more = |world: &mut World| (60..=110).find(|&number| world.open(&a, number, 1, 0).is_err());
    // Whatever it asks for, there is nobody who holds more than it does.
    assert!(more(&mut world).is_some());
    assert!((0..100).all(|_| world.open(&a, 120, 1, 0) == Err(Status::NOSPC)));
    assert!(world.state.clients.get(laptop.client).is_some());
    let many = greedy(&mut world, &b);
    assert!(many > 20 && world.state.clients.get(laptop.client).is_none(), "the silent one has made room: {many}");
}

#[test]
fn an_open_that_took_longer_than_a_lease_does_not_end_its_own_client() {
    // RFC 7530, section 9.5: the operation has renewed the lease, at its beginning.
    let mut config = config();
    config.limits.opens_max = 10;
    let mut world = World::with(config, &[]);
    let peer = super::v40::client(&mut world, "a");
    let count = (1..=20).take_while(|&number| world.open(&peer, number, 1, 0).is_ok()).count();
    let call = OpenCall {
        client: peer.client,
        owner: b"owner",
        file: file(100),
        share: share(1, 0),
        claim: Claim::New,
        want: Want::Unstated,
        extra: Extra::default(),
        truncate: false,
        terms: TERMS,
        opener: None,
    };
    let plan = world.state.check_open(&call, world.now).unwrap();
    world.pass(LEASE_MS + 1);
    let handle = world.handle.clone();
    assert_eq!(world.state.open(&call, handle, plan.union, world.now), Err(Status::RESOURCE));
    assert_eq!(world.state.totals().opens, count);
}

#[test]
fn source_that_opens_one_file_all_it_can_leaves_room_for_others() {
    let mut world = World::new();
    let from = |world: &mut World, last, name| peer(world, address(last), name).unwrap();
    let (a, same, b) = (from(&mut world, 1, "a"), from(&mut world, 1, "same host"), from(&mut world, 2, "b"));
    let greedy = |world: &mut World, peer: &Peer, most| {
        let open = |number: &u32| world.open_as(peer, &number.to_string(), 1, share(1, 0), Claim::New, Want::Unstated).is_ok();
        (0..most).take_while(open).count()
    };
    let max = limits::OPENS_PER_FILE_MAX;
    let count = greedy(&mut world, &a, max as u32 + 1);
    assert!((max / 5 * 4..=max / 5 * 4 + 4).contains(&count), "{count}");
    assert_eq!(greedy(&mut world, &same, 100), 0);
    assert_eq!(greedy(&mut world, &b, 1000), 1000);
    let opened = world.open_as(&a, "one more", 1, share(1, 0), Claim::New, Want::Unstated);
    assert_eq!(opened.map(|opened| opened.stateid), Err(Status::NOSPC));
}

#[test]
fn what_others_have_open_is_not_looked_at_for_a_commit() {
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let many = 1000;
    for number in 0..many {
        world.open_as(&a, &number.to_string(), 1, share(1, 0), Claim::New, Want::No).unwrap();
    }
    let looks = |world: &World, client: Option<ClientKey>| {
        let mut looks = 0;
        assert!(
            world
                .state
                .open_to_write(client, &file(1), |_| {
                    looks += 1;
                    false
                })
                .is_none()
        );
        looks
    };
    // Nobody writes.
    assert_eq!((looks(&world, Some(a.client)), looks(&world, None)), (0, 0));
    for number in 0..many {
        world.open_as(&a, &number.to_string(), 1, share(2, 0), Claim::New, Want::No).unwrap();
    }
    assert_eq!(looks(&world, Some(b.client)), 0);
    assert!(looks(&world, Some(a.client)) <= limits::OPENER_LOOKS_MAX && looks(&world, None) <= limits::OPENER_LOOKS_MAX);
    world.open(&b, 1, 2, 0).unwrap();
    assert!(world.state.open_to_write(Some(b.client), &file(1), |_| true).is_some() && world.state.writes_to(b.client, &file(1)));
    assert!(world.state.open_to_write(Some(b.client), &file(1 + BY_ANOTHER), |_| true).is_none(), "by another export it is not open");
}

#[test]
fn claims_are_judged() {
    // Section 18.16.3.
    let mut world = World::new();
    let peer = world.peer("a");
    let mut open = |claim| world.open_as(&peer, "o", 1, share(1, 0), claim, Want::Unstated).map(|opened| opened.stateid);
    assert_eq!(open(Claim::DelegatedPrevious), Err(Status::NOTSUPP));
    assert_eq!(open(Claim::Previous(vouch_nfs4::op::DelegationType::None)), Err(Status::NO_GRACE));
    assert_eq!(open(Claim::Delegated(Stateid::ANONYMOUS)), Err(Status::BAD_STATEID));
    // Section 18.51.3: before RECLAIM_COMPLETE nothing new is given.
    let early = world.returning("b", 1);
    assert_eq!(world.open(&early, 1, 1, 0), Err(Status::GRACE));
    world.state.reclaim_complete(early.client, true).unwrap();
    assert_eq!(world.open(&early, 1, 1, 0), Err(Status::GRACE));
    world.state.reclaim_complete(early.client, false).unwrap();
    assert!(world.open(&early, 1, 1, 0).is_ok());
    assert_eq!(world.state.reclaim_complete(early.client, false), Err(Status::COMPLETE_ALREADY));
}

#[test]
fn copies_are_followed_and_cancelled() {
    // RFC 7862, sections 15.8 and 15.9.
    let mut world = World::new();
    let peer = world.peer("a");
    let (key, stateid) = world.state.copy_begin(peer.client, &file(1), TERMS).unwrap();
    assert!(world.state.copy_goes_on(key, 10));
    let progress = world.state.copy_status(peer.client, &stateid, &file(1), 0).unwrap();
    assert_eq!(progress, CopyProgress { copied: 10, end: None });
    world.state.copy_cancel(peer.client, &stateid, &file(1), 0).unwrap();
    assert!(!world.state.copy_goes_on(key, 20));
    let (key, stateid) = world.state.copy_begin(peer.client, &file(1), TERMS).unwrap();
    world.state.copy_done(key, vouch_nfs4::cb::OffloadInfo::Failed(Status::NOSPC, 5), 0);
    let progress = world.state.copy_status(peer.client, &stateid, &file(1), 0).unwrap();
    assert_eq!(progress, CopyProgress { copied: 5, end: Some(Status::NOSPC) });
    let callbacks = world.callbacks();
    assert!(matches!(callbacks[0].op, CallbackOp::Offload { stateid: told, .. } if told == stateid));
    world.answer(&callbacks[0], Status::OK);
    assert_eq!(world.state.test_stateid(peer.client, &stateid), Status::BAD_STATEID);
    assert_eq!(world.state.totals().copies, 0);
}
