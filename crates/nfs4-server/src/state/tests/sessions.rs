//! SEQUENCE, binding of connections, DESTROY_SESSION (RFC 8881, sections 2.10, 18.34, 18.37,
//! 18.46).

use vouch_nfs4::op::{BindConnArgs, ChannelDirClient, ChannelDirServer, SequenceFlags};

use super::*;

#[test]
fn a_retry_is_answered_from_the_cache_over_any_connection() {
    // Section 2.10.6.1; trunking, section 2.10.5.
    let mut world = World::new();
    let mut peer = world.peer("a");
    let Ok(Sequenced::New(turn)) = world.sequence_on(&peer, 3, SlotSeq(1), true) else { panic!("it is new") };
    assert!(matches!(world.sequence_on(&peer, 3, SlotSeq(1), true), Err(Status::DELAY)));
    world.state.finish(&turn, Some(b"reply"), world.now);
    peer.connection = world.connection();
    assert!(matches!(world.sequence_on(&peer, 3, SlotSeq(1), true), Ok(Sequenced::Replay(reply)) if reply == b"reply"));
    assert!((5..1024).contains(&world.state.totals().reply_cache_len));
    let Ok(Sequenced::New(turn)) = world.sequence_on(&peer, 3, SlotSeq(2), false) else { panic!("it is new") };
    world.state.finish(&turn, None, world.now);
    assert!(matches!(world.sequence_on(&peer, 3, SlotSeq(2), false), Ok(Sequenced::Uncached(_))));
}

#[test]
fn what_is_not_kept_over_a_restart_is_not_promised() {
    // Section 18.36.3: CREATE_SESSION4_FLAG_PERSIST.
    let mut world = World::new();
    let introduced = world.introduce("a", 1, 0).unwrap();
    let connection = world.connection();
    let wishes = CreateSessionFlags::PERSIST | CreateSessionFlags::CONN_BACK_CHAN;
    let args = CreateSessionArgs { flags: wishes, ..session_args(introduced.client, introduced.seq) };
    let made = world.state.create_session(&args, connection, sys(&user(0)), 0).unwrap();
    assert_eq!(made.flags, CreateSessionFlags::CONN_BACK_CHAN);
}

#[test]
fn what_is_larger_than_the_channel_is_refused_before_the_slot_is_used() {
    // Section 18.46.3.
    let mut world = World::new();
    let peer = world.peer("a");
    let args = SequenceArgs { session: peer.session, seq: SlotSeq(1), slot: SlotId(0), highest_slot: SlotId(0), cache_this: false };
    let call = SequenceCall {
        args: &args,
        connection: peer.connection,
        address: [127, 0, 0, 1].into(),
        request_len: 100,
        operations: 17,
        fingerprint: 1,
    };
    assert!(matches!(world.state.sequence(&call, 0), Err(Status::TOO_MANY_OPS)));
    let call = SequenceCall { request_len: 70_000, operations: 2, ..call };
    assert!(matches!(world.state.sequence(&call, 0), Err(Status::REQ_TOO_BIG)));
    assert!(matches!(world.sequence_on(&peer, 0, SlotSeq(1), false), Ok(Sequenced::New(_))));
    assert!(matches!(world.sequence_on(&peer, 64, SlotSeq(1), false), Err(Status::BADSLOT)));
}

#[test]
fn a_session_that_uses_all_its_slots_gets_more() {
    // Section 2.10.6.1.
    let mut world = World::new();
    let peer = world.peer("a");
    let Ok(Sequenced::New(turn)) = world.sequence_on(&peer, 7, SlotSeq(1), false) else { panic!("it is new") };
    assert_eq!((turn.ok.highest_slot, turn.ok.target_highest_slot), (SlotId(15), SlotId(15)));
    let Ok(Sequenced::New(turn)) = world.sequence_on(&peer, 14, SlotSeq(1), false) else { panic!("it is new") };
    assert_eq!(turn.ok.highest_slot, SlotId(15));
    for highest in [15, 31, 63, 127, 255] {
        world.sequence_on(&peer, highest, SlotSeq(1), false).unwrap();
    }
    assert!(matches!(world.sequence_on(&peer, 256, SlotSeq(1), false), Err(Status::BADSLOT)));
}

#[test]
fn a_lost_back_channel_is_told_until_another_is_bound() {
    // Section 18.46.3.
    let mut world = World::new();
    let mut peer = world.peer("a");
    assert_eq!(world.beat(&mut peer), Ok(SequenceFlags(0)));
    world.state.connection_closed(peer.connection);
    peer.connection = world.connection();
    assert_eq!(world.beat(&mut peer), Ok(SequenceFlags::CB_PATH_DOWN | SequenceFlags::CB_PATH_DOWN_SESSION));
    let args = BindConnArgs { session: peer.session, dir: ChannelDirClient::BackOrBoth, rdma: true };
    let ok = world.state.bind_connection(&args, peer.connection, sys(&user(0))).unwrap();
    assert_eq!((ok.dir, ok.rdma), (ChannelDirServer::Both, false));
    assert_eq!(world.beat(&mut peer), Ok(SequenceFlags(0)));
}

#[test]
fn a_session_is_destroyed_over_a_connection_of_its_own() {
    // Section 18.37.3.
    let mut world = World::new();
    let mut peer = world.peer("a");
    let stranger = world.connection();
    assert_eq!(world.state.destroy_session(&peer.session, stranger, sys(&user(0))), Err(Status::CONN_NOT_BOUND_TO_SESSION));
    let Ok(Sequenced::New(turn)) = world.sequence_on(&peer, 1, SlotSeq(1), true) else { panic!("it is new") };
    assert_eq!(world.state.destroy_session(&peer.session, peer.connection, sys(&user(0))), Ok(()));
    world.state.finish(&turn, Some(b"late"), 0);
    assert_eq!(world.beat(&mut peer), Err(Status::BADSESSION));
    assert_eq!(world.state.destroy_session(&peer.session, peer.connection, sys(&user(0))), Err(Status::BADSESSION));
    assert_eq!(world.state.totals().reply_cache_len, 0);
}

#[test]
fn a_flood_of_connections_and_sessions_stays_bounded() {
    let mut world = World::new();
    let mut peer = world.peer("a");
    for _ in 0..500 {
        peer.connection = world.connection();
        world.beat(&mut peer).unwrap();
    }
    assert_eq!(world.state.status(0).sessions[0].connections, 64);
    assert_eq!(world.state.destroy_session(&peer.session, peer.connection, sys(&user(0))), Ok(()), "the newest is bound");
    let mut introduced = world.introduce("b", 1, 0).unwrap();
    let mut made = 0;
    loop {
        let connection = world.connection();
        match world.state.create_session(&session_args(introduced.client, introduced.seq), connection, sys(&user(0)), 0) {
            Ok(_) => made += 1,
            Err(status) => break assert_eq!(status, Status::NOSPC),
        }
        introduced.seq = introduced.seq.next();
    }
    assert_eq!(made, Limits::default().sessions_per_client_max);
}

#[test]
fn replies_are_kept_within_the_bound_and_none_that_was_promised_is_lost() {
    // Section 2.10.6.1.3: a reply that was to be kept is kept.
    let mut world = World::new();
    let peer = world.peer("a");
    // A slot that is there already.
    let Ok(Sequenced::New(used)) = world.sequence_on(&peer, 7, SlotSeq(1), false) else { panic!("a new request is new") };
    world.state.finish(&used, None, 0);
    world.state.reply_cache_len = Limits::default().reply_cache_len_max - 20_000;
    let mut turns = Vec::new();
    let refused = loop {
        match world.sequence_on(&peer, turns.len() as u32, SlotSeq(1), true) {
            Ok(Sequenced::New(turn)) => turns.push(turn),
            other => break other,
        }
    };
    assert!(matches!(refused, Err(Status::DELAY)) && !turns.is_empty(), "{refused:?}");
    let Ok(Sequenced::New(plain)) = world.sequence_on(&peer, 7, SlotSeq(2), false) else { panic!("what needs not be kept goes on") };
    world.state.finish(&plain, Some(&[0; 200]), 0);
    for turn in &turns {
        world.state.finish(turn, Some(&[7; 4096]), 0);
        assert!(world.state.totals().reply_cache_len <= Limits::default().reply_cache_len_max);
    }
    for at in 0..turns.len() {
        assert!(matches!(world.sequence_on(&peer, at as u32, SlotSeq(1), true), Ok(Sequenced::Replay(reply)) if reply == [7; 4096]));
    }
    assert_eq!(world.state.reply_cache_reserved, 0);
}

/// Fills the slots of sessions that are made anew until there is no room for one. How many replies
/// are kept.
fn fill(world: &mut World, from: u8, names: std::ops::Range<usize>, turns: &mut Vec<Turn>) -> usize {
    let mut kept = 0;
    for number in names {
        let Ok(peer) = super::quota::peer(world, super::quota::address(from), &format!("{from} {number}")) else { continue };
        for slot in 0..8 {
            if let Ok(Sequenced::New(turn)) = world.sequence_on(&peer, slot, SlotSeq(1), true) {
                kept += 1;
                turns.push(turn);
            }
        }
    }
    kept
}

#[test]
fn a_host_that_has_replies_kept_leaves_room_for_others() {
    let mut config = config();
    config.limits.reply_cache_len_max = 1 << 20;
    let mut world = World::with(config, &[]);
    let mut turns = Vec::new();
    // All are under way: nobody can make room.
    let kept = fill(&mut world, 1, 0..60, &mut turns);
    assert!((180..=205).contains(&kept), "four fifths of 256: {kept}");
    let mut other = Vec::new();
    assert_eq!(fill(&mut world, 2, 0..1, &mut other), 8, "another host has a session, and its replies are kept");
    turns.into_iter().chain(other).for_each(|turn| world.state.finish(&turn, Some(&[7; 4096]), 0));
    assert_eq!(world.state.reply_cache_reserved, 0);
    assert!(world.state.totals().reply_cache_len <= 1 << 20);
    // And that of the first goes on once it can: sessions of its that were silent for longest have
    // gone.
    world.pass(limits::EVICTION_INTERVAL_MS);
    let mut late = Vec::new();
    assert!(fill(&mut world, 1, 100..101, &mut late) > 0);
}

#[test]
fn idle_sessions_of_whoever_keeps_the_most_make_way() {
    let mut config = config();
    config.limits.reply_cache_len_max = 1 << 20;
    let mut world = World::with(config, &[]);
    let mut other = super::quota::peer(&mut world, super::quota::address(100), "other").unwrap();
    // Hosts enough that each share is next to nothing.
    for from in 1..60 {
        let mut turns = Vec::new();
        fill(&mut world, from, 0..40, &mut turns);
        turns.into_iter().for_each(|turn| world.state.finish(&turn, Some(&[7; 4096]), world.now));
        world.pass(limits::EVICTION_INTERVAL_MS);
    }
    for seq in 1..200 {
        let turn = match world.sequence_on(&other, 1, SlotSeq(seq), true) {
            Ok(Sequenced::New(turn)) => turn,
            other => panic!("who keeps little is served: {other:?}"),
        };
        world.state.finish(&turn, Some(&[7; 4096]), world.now);
    }
    assert!(world.beat(&mut other).is_ok());
    let (all, sum) = (world.state.reply_cache_len, world.state.sessions.iter().map(|(_, session)| session.slots.held_len()).sum::<usize>());
    assert_eq!(all, sum);
}

#[test]
fn what_is_wrong_with_a_request_is_told_before_anybody_makes_room_for_it() {
    // Section 18.46.3.
    let mut world = World::new();
    let peer = world.peer("a");
    let mut other = super::quota::peer(&mut world, super::quota::address(100), "other").unwrap();
    for seq in 1..3 {
        let Ok(Sequenced::New(turn)) = world.sequence_on(&other, 7, SlotSeq(seq), true) else { panic!("a new request is new") };
        world.state.finish(&turn, Some(&[7; 4096]), 0);
    }
    world.state.reply_cache_len += Limits::default().reply_cache_len_max;
    assert!(matches!(world.sequence_on(&peer, 0, SlotSeq(5), true), Err(Status::SEQ_MISORDERED)));
    assert!(matches!(world.sequence_on(&peer, 64, SlotSeq(1), true), Err(Status::BADSLOT)));
    assert!(matches!(world.sequence_on(&other, 7, SlotSeq(2), true), Ok(Sequenced::Replay(_))));
    assert_eq!(world.state.totals().sessions, 2, "nobody has made room");
    assert!(matches!(world.sequence_on(&peer, 0, SlotSeq(1), true), Err(Status::DELAY)));
    assert_eq!(world.beat(&mut other), Err(Status::BADSESSION), "whoever keeps the most has");
}

#[test]
fn who_finds_no_room_for_opens_keeps_nobody_from_a_session() {
    let mut config = config();
    (config.limits.reply_cache_len_max, config.limits.opens_max) = (1 << 20, 10);
    let mut world = World::with(config, &[]);
    let greedy = super::quota::peer(&mut world, super::quota::address(1), "greedy").unwrap();
    // Hosts enough that each share is next to nothing, all idle.
    for from in 3..60 {
        let mut turns = Vec::new();
        fill(&mut world, from, 0..40, &mut turns);
        turns.into_iter().for_each(|turn| world.state.finish(&turn, Some(&[7; 4096]), world.now));
        world.pass(limits::EVICTION_INTERVAL_MS);
    }
    let left = (1 << 20) - world.state.reply_cache_len;
    assert!(left < limits::REPLY_CACHE_SESSION_LEN, "somebody has to make room for a session: {left}");
    assert!((1..=20).any(|number| world.open(&greedy, number, 1, 0).is_err()));
    assert_eq!(world.open(&greedy, 100, 1, 0), Err(Status::NOSPC));
    assert!(super::quota::peer(&mut world, super::quota::address(2), "new").is_ok());
}

#[test]
fn sessions_of_one_connection_are_bounded() {
    let mut world = World::new();
    let connection = world.connection();
    let names: Vec<&'static str> = (0..40).map(|at| &*format!("client {at}").leak()).collect();
    let mut made = 0;
    for name in names {
        let mut introduced = world.introduce(name, 1, 0).unwrap();
        while world.state.create_session(&session_args(introduced.client, introduced.seq), connection, sys(&user(0)), 0).is_ok() {
            made += 1;
            introduced.seq = introduced.seq.next();
        }
    }
    assert_eq!(made, super::super::limits::SESSIONS_PER_CONNECTION_MAX);
}
