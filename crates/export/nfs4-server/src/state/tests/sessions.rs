//! RFC 8881 §2.10, 18.34, 18.37, 18.46.

use vouch_nfs4::op::{BindConnArgs, ChannelDirClient, ChannelDirServer, SequenceFlags};

use super::quota::{address, peer_from};
use super::*;

#[test]
fn retry_gets_cached_reply_over_any_connection() {
    // §2.10.6.1 and 2.10.5.
    let (mut fixture, [mut peer]) = Fixture::with_peers(["a"]);
    let turn = fixture.begin(&peer, 3, 1, true);
    assert!(matches!(fixture.sequence_on(&peer, 3, SlotSeq(1), true), Err(Status::DELAY)));
    fixture.state.finish(&turn, Some(b"reply"), fixture.now);
    peer.connection = fixture.new_connection();
    assert!(
        matches!(fixture.sequence_on(&peer, 3, SlotSeq(1), true), Ok(Sequenced::Replay(reply)) if reply == b"reply")
    );
    assert!((5..1024).contains(&fixture.state.totals().reply_cache_len));
    let turn = fixture.begin(&peer, 3, 2, false);
    fixture.state.finish(&turn, None, fixture.now);
    assert!(matches!(fixture.sequence_on(&peer, 3, SlotSeq(2), false), Ok(Sequenced::Uncached(_))));
}

#[test]
fn create_session_does_not_promise_persistence() {
    // §18.36.3.
    let mut fixture = Fixture::new();
    let exchanged = fixture.exchange_id("a", 1, 0).unwrap();
    let connection = fixture.new_connection();
    let flags = CreateSessionFlags::PERSIST | CreateSessionFlags::CONN_BACK_CHAN;
    let args = CreateSessionArgs { flags, ..session_args(exchanged.client, exchanged.seq) };
    let made = fixture.create_session(&args, connection).unwrap();
    assert_eq!(made.flags, CreateSessionFlags::CONN_BACK_CHAN);
}

#[test]
fn request_beyond_channel_limits_does_not_use_its_slot() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    let args = SequenceArgs {
        session: peer.session,
        seq: SlotSeq(1),
        slot: SlotId(0),
        highest_slot: SlotId(0),
        cache_this: false,
    };
    let call = SequenceCall {
        args: &args,
        connection: peer.connection,
        address: [127, 0, 0, 1].into(),
        request_len: 100,
        operations: 17,
        fingerprint: 1,
    };
    assert!(matches!(fixture.state.sequence(&call, 0), Err(Status::TOO_MANY_OPS)));
    let call = SequenceCall { request_len: 70_000, operations: 2, ..call };
    assert!(matches!(fixture.state.sequence(&call, 0), Err(Status::REQ_TOO_BIG)));
    assert!(matches!(fixture.sequence_on(&peer, 0, SlotSeq(1), false), Ok(Sequenced::New(_))));
    assert!(matches!(fixture.sequence_on(&peer, 64, SlotSeq(1), false), Err(Status::BADSLOT)));
}

#[test]
fn session_that_uses_all_slots_gets_more() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    let args = SequenceArgs {
        session: peer.session,
        seq: SlotSeq(1),
        slot: SlotId(0),
        highest_slot: SlotId(7),
        cache_this: false,
    };
    let answer = fixture.sequence_with([127, 0, 0, 1].into(), &peer, &args);
    let Ok(Sequenced::New(turn)) = answer else { panic!("{answer:?}") };
    assert_eq!((turn.ok.highest_slot, turn.ok.target_highest_slot), (SlotId(7), SlotId(7)));
    let turn = fixture.begin(&peer, 7, 1, false);
    assert_eq!((turn.ok.highest_slot, turn.ok.target_highest_slot), (SlotId(15), SlotId(15)));
    let turn = fixture.begin(&peer, 14, 1, false);
    assert_eq!(turn.ok.highest_slot, SlotId(15));
    for highest in [15, 31, 63, 127, 255] {
        fixture.sequence_on(&peer, highest, SlotSeq(1), false).unwrap();
    }
    assert!(matches!(fixture.sequence_on(&peer, 256, SlotSeq(1), false), Err(Status::BADSLOT)));
}

#[test]
fn lost_back_channel_is_reported_until_rebound() {
    let (mut fixture, [mut peer]) = Fixture::with_peers(["a"]);
    assert_eq!(fixture.renew_lease(&mut peer), Ok(SequenceFlags(0)));
    fixture.state.connection_closed(peer.connection);
    peer.connection = fixture.new_connection();
    assert_eq!(
        fixture.renew_lease(&mut peer),
        Ok(SequenceFlags::CB_PATH_DOWN | SequenceFlags::CB_PATH_DOWN_SESSION)
    );
    let args =
        BindConnArgs { session: peer.session, dir: ChannelDirClient::BackOrBoth, rdma: true };
    let ok = fixture.state.bind_connection(&args, peer.connection, sys(&user(0))).unwrap();
    assert_eq!((ok.dir, ok.rdma), (ChannelDirServer::Both, false));
    assert_eq!(fixture.renew_lease(&mut peer), Ok(SequenceFlags(0)));
}

#[test]
fn destroy_session_requires_bound_connection() {
    let (mut fixture, [mut peer]) = Fixture::with_peers(["a"]);
    let stranger = fixture.new_connection();
    assert_eq!(
        fixture.state.destroy_session(&peer.session, stranger, sys(&user(0))),
        Err(Status::CONN_NOT_BOUND_TO_SESSION)
    );
    let turn = fixture.begin(&peer, 1, 1, true);
    assert_eq!(
        fixture.state.destroy_session(&peer.session, peer.connection, sys(&user(0))),
        Ok(())
    );
    fixture.state.finish(&turn, Some(b"late"), 0);
    assert_eq!(fixture.renew_lease(&mut peer), Err(Status::BADSESSION));
    assert_eq!(
        fixture.state.destroy_session(&peer.session, peer.connection, sys(&user(0))),
        Err(Status::BADSESSION)
    );
    assert_eq!(fixture.state.totals().reply_cache_len, 0);
}

fn create_sessions(
    fixture: &mut Fixture,
    name: &'static str,
    connection: Option<ConnectionId>,
) -> (usize, Status) {
    let mut exchanged = fixture.exchange_id(name, 1, 0).unwrap();
    let mut made = 0;
    loop {
        let connection = connection.unwrap_or_else(|| fixture.new_connection());
        match fixture.create_session(&session_args(exchanged.client, exchanged.seq), connection) {
            Ok(_) => made += 1,
            Err(status) => return (made, status),
        }
        exchanged.seq = exchanged.seq.next();
    }
}

#[test]
fn connections_and_sessions_are_limited() {
    let (mut fixture, [mut peer]) = Fixture::with_peers(["a"]);
    for _ in 0..500 {
        peer.connection = fixture.new_connection();
        fixture.renew_lease(&mut peer).unwrap();
    }
    assert_eq!(fixture.state.sessions.iter().next().unwrap().1.connections.len(), 64);
    assert_eq!(
        fixture.state.destroy_session(&peer.session, peer.connection, sys(&user(0))),
        Ok(()),
        "the newest connection is bound"
    );
    assert_eq!(
        create_sessions(&mut fixture, "b", None),
        (Limits::default().sessions_per_client_max, Status::NOSPC)
    );
    let mut fixture = Fixture::new();
    let connection = fixture.new_connection();
    let made = (0..40)
        .map(|at| create_sessions(&mut fixture, format!("client {at}").leak(), Some(connection)).0)
        .sum::<usize>();
    assert_eq!(made, limits::SESSIONS_PER_CONNECTION_MAX);
}

#[test]
fn reply_cache_keeps_its_limit_and_all_promised_replies() {
    // §2.10.6.1.3.
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    let used = fixture.begin(&peer, 7, 1, false);
    fixture.state.finish(&used, None, 0);
    fixture.state.reply_cache_len = Limits::default().reply_cache_len_max - 20_000;
    let mut turns = Vec::new();
    let refused = loop {
        match fixture.sequence_on(&peer, turns.len() as u32, SlotSeq(1), true) {
            Ok(Sequenced::New(turn)) => turns.push(turn),
            other => break other,
        }
    };
    assert!(matches!(refused, Err(Status::DELAY)) && !turns.is_empty(), "{refused:?}");
    let plain = fixture.begin(&peer, 7, 2, false);
    fixture.state.finish(&plain, Some(&[0; 200]), 0);
    for turn in &turns {
        fixture.state.finish(turn, Some(&[7; 4096]), 0);
        assert!(fixture.state.totals().reply_cache_len <= Limits::default().reply_cache_len_max);
    }
    for at in 0..turns.len() {
        assert!(
            matches!(fixture.sequence_on(&peer, at as u32, SlotSeq(1), true), Ok(Sequenced::Replay(reply)) if reply == [7; 4096])
        );
    }
    assert_eq!(fixture.state.reply_cache_reserved, 0);
}

fn fill_reply_cache(fixture: &mut Fixture, from: u8, names: std::ops::Range<usize>) -> Vec<Turn> {
    let mut turns = Vec::new();
    for number in names {
        let Ok(peer) = peer_from(fixture, address(from), &format!("{from} {number}")) else {
            continue;
        };
        turns.extend((0..8).filter_map(|slot| {
            match fixture.sequence_on(&peer, slot, SlotSeq(1), true) {
                Ok(Sequenced::New(turn)) => Some(turn),
                _ => None,
            }
        }));
    }
    turns
}

fn finish_all(fixture: &mut Fixture, turns: Vec<Turn>) {
    turns.into_iter().for_each(|turn| fixture.state.finish(&turn, Some(&[7; 4096]), fixture.now));
}

fn fill_reply_cache_from_many(fixture: &mut Fixture) {
    for from in 3..60 {
        let turns = fill_reply_cache(fixture, from, 0..40);
        finish_all(fixture, turns);
        fixture.advance(limits::EVICTION_INTERVAL_MS);
    }
}

#[test]
fn reply_cache_quota_leaves_room_for_others() {
    let mut fixture = Fixture::with_limits(|limits| limits.reply_cache_len_max = 1 << 20);
    let mut turns = fill_reply_cache(&mut fixture, 1, 0..60);
    assert!((180..=205).contains(&turns.len()), "four fifths of 256: {}", turns.len());
    let other = fill_reply_cache(&mut fixture, 2, 0..1);
    assert_eq!(other.len(), 8, "another source gets a session and cached replies");
    turns.extend(other);
    finish_all(&mut fixture, turns);
    assert_eq!(fixture.state.reply_cache_reserved, 0);
    assert!(fixture.state.totals().reply_cache_len <= 1 << 20);
    fixture.advance(limits::EVICTION_INTERVAL_MS);
    assert!(!fill_reply_cache(&mut fixture, 1, 100..101).is_empty());
}

#[test]
fn idle_sessions_of_largest_source_are_evicted() {
    let mut fixture = Fixture::with_limits(|limits| limits.reply_cache_len_max = 1 << 20);
    let mut other = peer_from(&mut fixture, address(100), "other").unwrap();
    fill_reply_cache_from_many(&mut fixture);
    for seq in 1..200 {
        let turn = fixture.begin(&other, 1, seq, true);
        fixture.state.finish(&turn, Some(&[7; 4096]), fixture.now);
    }
    assert!(fixture.renew_lease(&mut other).is_ok());
    let held: usize =
        fixture.state.sessions.iter().map(|(_, session)| session.slots.held_len()).sum();
    assert_eq!(fixture.state.reply_cache_len, held);
}

#[test]
fn invalid_sequence_evicts_no_session() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    let mut other = peer_from(&mut fixture, address(100), "other").unwrap();
    for seq in 1..3 {
        let turn = fixture.begin(&other, 7, seq, true);
        fixture.state.finish(&turn, Some(&[7; 4096]), 0);
    }
    fixture.state.reply_cache_len += Limits::default().reply_cache_len_max;
    assert!(matches!(fixture.sequence_on(&peer, 0, SlotSeq(5), true), Err(Status::SEQ_MISORDERED)));
    assert!(matches!(fixture.sequence_on(&peer, 64, SlotSeq(1), true), Err(Status::BADSLOT)));
    assert!(matches!(fixture.sequence_on(&other, 7, SlotSeq(2), true), Ok(Sequenced::Replay(_))));
    assert_eq!(fixture.state.totals().sessions, 2, "no session was evicted");
    assert!(matches!(fixture.sequence_on(&peer, 0, SlotSeq(1), true), Err(Status::DELAY)));
    assert_eq!(
        fixture.renew_lease(&mut other),
        Err(Status::BADSESSION),
        "the largest source's session was evicted"
    );
}

#[test]
fn refused_opens_do_not_block_new_sessions_of_others() {
    let mut fixture = Fixture::with_limits(|limits| {
        (limits.reply_cache_len_max, limits.opens_max) = (1 << 20, 10)
    });
    let greedy = peer_from(&mut fixture, address(1), "greedy").unwrap();
    fill_reply_cache_from_many(&mut fixture);
    let left = (1 << 20) - fixture.state.reply_cache_len;
    assert!(left < limits::REPLY_CACHE_SESSION_LEN, "no room without an eviction: {left}");
    assert!((1..=20).any(|number| fixture.open(&greedy, number, 1, 0).is_err()));
    assert_eq!(fixture.open(&greedy, 100, 1, 0), Err(Status::NOSPC));
    assert!(peer_from(&mut fixture, address(2), "new").is_ok());
}
