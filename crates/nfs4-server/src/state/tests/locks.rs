//! LOCK, LOCKT, LOCKU (RFC 8881, sections 9 and 18.10 to 18.12).

use super::quota::{address, peer};
use super::*;
use crate::CallbackTo;

fn denied<T: std::fmt::Debug>(result: Result<T, LockError>) -> Denied {
    match result {
        Err(LockError::Denied(denied)) => denied,
        other => panic!("it is denied: {other:?}"),
    }
}

#[test]
fn a_lock_keeps_others_out_and_tells_whose_it_is() {
    // Section 18.10.4.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let (open_a, open_b) = (world.open(&a, 1, 3, 0).unwrap(), world.open(&b, 1, 3, 0).unwrap());
    world.lock(&a, &open_a, "x", 1, (10, 10), Mode::Exclusive).unwrap();
    let told = denied(world.lock(&b, &open_b, "y", 1, (0, u64::MAX), Mode::Shared));
    assert_eq!(
        (told.range.offset(), told.range.length(), told.mode, told.client, &*told.owner),
        (10, 10, Mode::Exclusive, a.id, &b"x"[..])
    );
    assert!(world.lock(&b, &open_b, "y", 1, (0, 10), Mode::Exclusive).is_ok());
    let range = Range::new(15, 1).unwrap();
    let test = |world: &mut World, peer: &Peer, owner: &str| {
        world.state.test_lock(peer.client, owner.as_bytes(), &file(1), range, Mode::Shared, 0)
    };
    assert_eq!(test(&mut world, &a, "x"), Ok(()));
    denied(test(&mut world, &a, "y"));
    denied(test(&mut world, &b, "x"));
}

#[test]
fn an_owner_may_change_its_own_locks_in_part() {
    // Sections 9.5 and 18.12.
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let (open_a, open_b) = (world.open(&a, 1, 3, 0).unwrap(), world.open(&b, 1, 3, 0).unwrap());
    world.lock(&a, &open_a, "x", 1, (0, 100), Mode::Exclusive).unwrap();
    let lock = world.lock(&a, &open_a, "x", 1, (0, 50), Mode::Shared).unwrap();
    assert_eq!(lock.seq, vouch_nfs4::StateSeq(2));
    assert!(world.lock(&b, &open_b, "y", 1, (0, 50), Mode::Shared).is_ok());
    denied(world.lock(&a, &open_a, "x", 1, (0, 100), Mode::Exclusive));
    world.state.unlock(Some(a.client), &lock, &file(1), Range::new(60, 10).unwrap(), 0).unwrap();
    assert_eq!(world.state.totals().locks, 4);
    assert!(world.lock(&b, &open_b, "y", 1, (60, 10), Mode::Exclusive).is_ok());
}

#[test]
fn the_open_must_allow_what_is_locked() {
    // Section 18.10.3.
    let mut world = World::new();
    let peer = world.peer("a");
    let open = world.open(&peer, 1, 1, 0).unwrap();
    assert_eq!(world.lock(&peer, &open, "x", 1, (0, 1), Mode::Exclusive), Err(Status::OPENMODE.into()));
    assert!(world.lock(&peer, &open, "x", 1, (0, 1), Mode::Shared).is_ok());
    assert_eq!(world.lock(&peer, &open, "x", 1, (0, 0), Mode::Shared), Err(Status::INVAL.into()));
}

#[test]
fn the_first_that_waits_is_told_and_comes_first() {
    // Sections 9.6 and 20.11.
    let mut world = World::new();
    let peers = [world.peer("a"), world.peer("b"), world.peer("c")];
    let opens = peers.map(|peer| world.open(&peer, 1, 3, 0).unwrap());
    let wait = |world: &mut World, at: usize| world.lock_call(&peers[at], &opens[at], "x", 1, (0, 10), Mode::Exclusive, true, false);
    let lock = wait(&mut world, 0).unwrap();
    denied(wait(&mut world, 1));
    denied(wait(&mut world, 2));
    world.callbacks();
    world.state.unlock(Some(peers[0].client), &lock, &file(1), Range::new(0, 10).unwrap(), 0).unwrap();
    let callbacks = world.callbacks();
    assert_eq!(callbacks.len(), 1);
    assert!(matches!(&callbacks[0].op, CallbackOp::NotifyLock { owner, .. } if **owner == *b"x"));
    assert_eq!(callbacks[0].to, crate::CallbackTo::Connection(peers[1].connection));
    // The second may not overtake, and the first gets it.
    denied(wait(&mut world, 2));
    let lock = wait(&mut world, 1).unwrap();
    denied(wait(&mut world, 2));
    world.state.unlock(Some(peers[1].client), &lock, &file(1), Range::new(0, 10).unwrap(), 0).unwrap();
    assert_eq!(world.callbacks()[0].to, crate::CallbackTo::Connection(peers[2].connection));
}

#[test]
fn who_waits_to_read_is_told_when_a_writers_lock_becomes_a_readers() {
    // Section 9.5.
    let mut world = World::new();
    let peers = [world.peer("a"), world.peer("b"), world.peer("c")];
    let opens = peers.map(|peer| world.open(&peer, 1, 3, 0).unwrap());
    let wait = |world: &mut World, at: usize, mode| world.lock_call(&peers[at], &opens[at], "x", 1, (0, 10), mode, true, false);
    world.lock(&peers[0], &opens[0], "x", 1, (0, 100), Mode::Exclusive).unwrap();
    denied(wait(&mut world, 1, Mode::Shared));
    denied(wait(&mut world, 2, Mode::Exclusive));
    world.callbacks();
    world.lock(&peers[0], &opens[0], "x", 1, (0, 100), Mode::Shared).unwrap();
    let told: Vec<_> = world.callbacks().into_iter().map(|callback| callback.to).collect();
    assert_eq!(told, [CallbackTo::Connection(peers[1].connection)]);
    assert!(wait(&mut world, 1, Mode::Shared).is_ok());
    denied(wait(&mut world, 2, Mode::Exclusive));
}

#[test]
fn one_that_was_told_and_does_not_come_loses_its_place() {
    // Section 9.6.
    let mut world = World::new();
    let peers = [world.peer("a"), world.peer("b"), world.peer("c")];
    let opens = peers.map(|peer| world.open(&peer, 1, 3, 0).unwrap());
    let wait = |world: &mut World, at: usize| world.lock_call(&peers[at], &opens[at], "x", 1, (0, 10), Mode::Exclusive, true, false);
    wait(&mut world, 0).unwrap();
    denied(wait(&mut world, 1));
    denied(wait(&mut world, 2));
    world.state.revoke_client(peers[0].id);
    assert_eq!(world.callbacks().len(), 1);
    world.pass(3000);
    assert_eq!(world.callbacks()[0].to, crate::CallbackTo::Connection(peers[2].connection));
    assert!(wait(&mut world, 2).is_ok());
}

#[test]
fn one_that_was_told_and_is_slow_is_told_again() {
    // Section 20.11: a callback that is lost must not cost the waiter the time after which it asks by
    // itself.
    let mut world = World::new();
    let peers = [world.peer("a"), world.peer("b"), world.peer("c")];
    let opens = peers.map(|peer| world.open(&peer, 1, 3, 0).unwrap());
    let wait = |world: &mut World, at: usize| world.lock_call(&peers[at], &opens[at], "x", 1, (0, 10), Mode::Exclusive, true, false);
    wait(&mut world, 0).unwrap();
    denied(wait(&mut world, 1));
    denied(wait(&mut world, 2));
    world.state.revoke_client(peers[0].id);
    let told: Vec<CallbackTo> = (0..4)
        .map(|_| {
            let callbacks = world.callbacks();
            world.pass(2500);
            assert_eq!(callbacks.len(), 1);
            callbacks[0].to
        })
        .collect();
    let [b, c] = [peers[1], peers[2]].map(|peer| CallbackTo::Connection(peer.connection));
    assert_eq!(told, [b, c, b, c]);
    assert!(wait(&mut world, 1).is_ok());
}

#[test]
fn a_silent_clients_lock_gives_way() {
    // Section 8.4.
    let mut world = World::new();
    let a = world.peer("a");
    let open = world.open(&a, 1, 3, 0).unwrap();
    world.lock(&a, &open, "x", 1, (0, 10), Mode::Exclusive).unwrap();
    world.pass(LEASE_MS + 1);
    let b = world.peer("b");
    let open = world.open(&b, 1, 3, 0).unwrap();
    assert_eq!(world.state.totals().locks, 1);
    assert!(world.lock(&b, &open, "x", 1, (0, 10), Mode::Exclusive).is_ok());
    // It may not have it back after a restart: the record that says so came before the reply.
    world.callbacks();
    let revoked = world.effects.iter().any(|effect| match effect {
        StateEffect::Persist { key, value } => {
            let record = RecoveryRecord::from_bytes(key, value).unwrap();
            record.owner == b"a" && record.revoked
        }
        _ => false,
    });
    assert!(revoked);
}

#[test]
fn ranges_of_a_client_are_bounded() {
    let mut config = config();
    config.limits.locks_per_client_max = 10;
    let mut world = World::with(config, &[]);
    let peer = world.peer("a");
    let open = world.open(&peer, 1, 3, 0).unwrap();
    let mut lock = world.lock(&peer, &open, "x", 1, (0, 1000), Mode::Exclusive).unwrap();
    let outcome =
        (0..100).find_map(|at| match world.state.unlock(Some(peer.client), &lock, &file(1), Range::new(at * 3 + 1, 1).unwrap(), 0) {
            Ok(next) => {
                lock = next;
                None
            }
            Err(status) => Some(status),
        });
    assert_eq!(outcome, Some(Status::LOCK_RANGE));
    assert!(world.lock(&peer, &open, "y", 1, (5000, 1), Mode::Exclusive).is_err());
    // What makes no more of them goes on.
    assert!(world.state.unlock(Some(peer.client), &lock, &file(1), Range::new(0, 1000).unwrap(), 0).is_ok());
    assert_eq!(world.state.totals().locks, 0);
}

#[test]
fn source_that_locks_all_it_can_leaves_room_for_others() {
    let mut config = config();
    config.limits.locks_max = 100;
    let mut world = World::with(config, &[]);
    let (a, b) = (peer(&mut world, address(1), "a").unwrap(), peer(&mut world, address(1), "another name").unwrap());
    let c = peer(&mut world, address(2), "c").unwrap();
    let greedy = |world: &mut World, peer: &Peer, number: u8| {
        let open = world.open(peer, number, 3, 0).unwrap();
        (0..100).take_while(|&at| world.lock(peer, &open, "x", number, (at * 2, 1), Mode::Exclusive).is_ok()).count()
    };
    assert_eq!((greedy(&mut world, &a, 1), greedy(&mut world, &b, 2), greedy(&mut world, &c, 3)), (79, 0, 15));
    let open = world.open(&a, 1, 3, 0).unwrap();
    assert_eq!(world.lock(&a, &open, "x", 1, (900, 1), Mode::Exclusive), Err(LockError::Status(Status::DELAY)));
}

#[test]
fn lock_owners_of_a_file_are_shared_between_hosts() {
    let mut world = World::new();
    let peers = [1, 2].map(|last| peer(&mut world, address(last), &format!("{last}")).unwrap());
    let opens = peers.map(|peer| world.open(&peer, 1, 3, 0).unwrap());
    let mut greedy = |at: usize| {
        (0..limits::LOCK_OWNERS_PER_FILE_MAX)
            .take_while(|number| world.lock(&peers[at], &opens[at], &format!("{at} {number}"), 1, (0, 1), Mode::Shared).is_ok())
            .count()
    };
    let (first, second) = (greedy(0), greedy(1));
    assert!(first <= limits::LOCK_OWNERS_PER_FILE_MAX / 5 * 4 + 1 && second > 500, "{first} {second}");
    let one_more = world.lock(&peers[0], &opens[0], "one more", 1, (0, 1), Mode::Shared);
    assert_eq!(one_more, Err(LockError::Status(Status::DELAY)), "4.1 has no RESOURCE, and SERVERFAULT is no fault of the server's");
}

#[test]
fn only_those_are_told_whose_bytes_were_freed() {
    let mut world = World::new();
    let peers = [world.peer("a"), world.peer("b"), world.peer("c"), world.peer("d")];
    let opens = peers.map(|peer| world.open(&peer, 1, 3, 0).unwrap());
    let wait = |world: &mut World, at: usize, range| world.lock_call(&peers[at], &opens[at], "x", 1, range, Mode::Exclusive, true, false);
    let lock = wait(&mut world, 0, (0, 100)).unwrap();
    denied(wait(&mut world, 1, (0, 10)));
    denied(wait(&mut world, 2, (5, 20)));
    denied(wait(&mut world, 3, (50, 10)));
    world.callbacks();
    let free = |world: &mut World, lock: &Stateid, range: (u64, u64)| {
        let range = Range::new(range.0, range.1).unwrap();
        let lock = world.state.unlock(Some(peers[0].client), lock, &file(1), range, 0).unwrap();
        let told: Vec<_> = world.callbacks().into_iter().map(|callback| callback.to).collect();
        (lock, told)
    };
    let (lock, told) = free(&mut world, &lock, (0, 10));
    assert_eq!(told, [CallbackTo::Connection(peers[1].connection)]);
    // The second still has to wait for the first, for whom the bytes are kept.
    let (lock, told) = free(&mut world, &lock, (10, 20));
    assert!(told.is_empty());
    let (_, told) = free(&mut world, &lock, (30, 70));
    assert_eq!(told, [CallbackTo::Connection(peers[3].connection)]);
    assert!(wait(&mut world, 1, (0, 10)).is_ok());
    assert!(wait(&mut world, 3, (50, 10)).is_ok());
}

#[test]
fn with_a_client_all_its_locks_go_and_each_that_waits_is_told_once() {
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    for number in 1..=2 {
        let (open_a, open_b) = (world.open(&a, number, 3, 0).unwrap(), world.open(&b, number, 3, 0).unwrap());
        for at in 0..50 {
            world.lock(&a, &open_a, &format!("x{at}"), number, (at, 1), Mode::Exclusive).unwrap();
        }
        denied(world.lock_call(&b, &open_b, "first", number, (0, 50), Mode::Exclusive, true, false));
        denied(world.lock_call(&b, &open_b, "second", number, (40, 50), Mode::Exclusive, true, false));
    }
    world.callbacks();
    world.state.revoke_client(a.id);
    let files = |callbacks: &[OutgoingCallback]| {
        let told = callbacks.iter().filter_map(|callback| match &callback.op {
            CallbackOp::NotifyLock { file, owner } => Some((*file, owner.to_vec())),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    let mut told = files(&world.callbacks());
    told.sort_by_key(|(at, _)| *at != file(1));
    assert_eq!(told, [(file(1), b"first".to_vec()), (file(2), b"first".to_vec())]);
    assert_eq!(world.state.totals().locks, 0);
}

#[test]
fn all_that_wait_are_looked_at_however_many_locks_there_are() {
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let (open_a, open_b) = (world.open(&a, 1, 3, 0).unwrap(), world.open(&b, 1, 3, 0).unwrap());
    for at in 1..2000 {
        world.lock(&a, &open_a, &format!("x{at}"), 1, (1000 + at, 1), Mode::Exclusive).unwrap();
    }
    let last = world.lock(&a, &open_a, "last", 1, (0, 10), Mode::Exclusive).unwrap();
    let wait =
        |world: &mut World, at: u64, length| world.lock_call(&b, &open_b, &format!("y{at}"), 1, (0, length), Mode::Exclusive, true, false);
    let waiting = limits::WAITERS_PER_FILE_MAX as u64 / 2;
    (0..waiting).for_each(|at| drop(denied(wait(&mut world, at, 10))));
    denied(wait(&mut world, waiting, 5));
    world.callbacks();
    lock::interval_tree::take_steps();
    world.state.unlock(Some(a.client), &last, &file(1), Range::new(0, 5).unwrap(), 0).unwrap();
    let steps = lock::interval_tree::take_steps();
    assert!(steps < limits::WAITERS_PER_FILE_MAX * 12 * 12, "{steps}");
    assert_eq!(world.callbacks().len(), 1, "the last one's turn comes");
    assert!(wait(&mut world, waiting, 5).is_ok());
}

#[test]
fn a_lock_costs_the_same_however_many_owners_have_some_of_the_file() {
    const OWNERS: u64 = 4096;
    let mut world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let (open_a, open_b) = (world.open(&a, 1, 3, 0).unwrap(), world.open(&b, 1, 3, 0).unwrap());
    for at in 0..OWNERS {
        world.lock(&a, &open_a, &format!("x{at}"), 1, (0, 100 + at), Mode::Shared).unwrap();
    }
    let log = OWNERS.ilog2() as usize;
    lock::interval_tree::take_steps();
    let lock = world.lock(&b, &open_b, "y", 1, (0, 1000), Mode::Shared).unwrap();
    denied(world.lock(&b, &open_b, "z", 1, (100, 1000), Mode::Exclusive));
    let range = Range::new(0, 1000).unwrap();
    denied(world.state.test_lock(b.client, b"z", &file(1), range, Mode::Exclusive, 0));
    let lock = world.state.unlock(Some(b.client), &lock, &file(1), range, 0).unwrap();
    world.state.free_stateid(b.client, &lock).unwrap();
    let steps = lock::interval_tree::take_steps();
    assert!(steps > 0 && steps < 50 * log, "{steps}");
    // An exclusive lock behind all others, and the first that is in the way.
    world.lock(&b, &open_b, "y", 1, (100 + OWNERS, 1), Mode::Exclusive).unwrap();
    let told = denied(world.lock(&a, &open_a, "x0", 1, (100 + OWNERS / 2, u64::MAX), Mode::Exclusive));
    assert_eq!((told.range.offset(), told.mode), (0, Mode::Shared));
    let told = denied(world.lock(&a, &open_a, "x0", 1, (99 + OWNERS, u64::MAX), Mode::Shared));
    assert_eq!((told.range.offset(), told.mode, told.client), (100 + OWNERS, Mode::Exclusive, b.id));
}

#[test]
fn many_silent_clients_locks_give_way_at_once_and_to_nobody_who_is_refused() {
    // Section 8.4.
    let mut world = World::new();
    const SILENT: usize = limits::SILENT_LOOKS_MAX * 2 + 1;
    let names: Vec<String> = (0..SILENT).map(|at| format!("silent {at}")).collect();
    for name in &names {
        let peer = super::quota::peer(&mut world, address(1), name).unwrap();
        let open = world.open(&peer, 1, 1, 0).unwrap();
        world.lock(&peer, &open, "x", 1, (0, 10), Mode::Shared).unwrap();
    }
    world.pass(LEASE_MS + 1);
    let (b, c) = (world.peer("b"), world.peer("c"));
    let (open_b, open_c) = (world.open(&b, 1, 3, 0).unwrap(), world.open(&c, 1, 3, 0).unwrap());
    let lock = world.lock(&b, &open_b, "x", 1, (9, 1), Mode::Shared).unwrap();
    // Where one that is not silent is seen among them, nobody loses anything.
    denied(world.lock(&c, &open_c, "x", 1, (9, 10), Mode::Exclusive));
    assert!(world.state.totals().locks > 1);
    world.state.unlock(Some(b.client), &lock, &file(1), Range::new(9, 1).unwrap(), world.now).unwrap();
    assert!(world.lock(&c, &open_c, "x", 1, (9, 10), Mode::Exclusive).is_ok());
    assert_eq!(world.state.totals().locks, 1);
}

#[test]
fn a_silent_client_with_many_locks_loses_none_to_who_is_refused() {
    let mut world = World::new();
    let (silent, mut live) = (world.peer("silent"), world.peer("live"));
    let [open, open_live] = [&silent, &live].map(|peer| world.open(peer, 1, 3, 0).unwrap());
    let (count, behind) = (limits::SILENT_LOOKS_MAX as u64 * 4, 1_000_000);
    for at in 0..count {
        world.lock(&silent, &open, "x", 1, (at * 2, 1), Mode::Exclusive).unwrap();
    }
    let lock = world.lock(&live, &open_live, "x", 1, (behind, 1), Mode::Exclusive).unwrap();
    world.pass(LEASE_MS - 10);
    world.beat(&mut live).unwrap();
    world.pass(20);
    let other = world.peer("other");
    let open_other = world.open(&other, 1, 3, 0).unwrap();
    let told = denied(world.lock(&other, &open_other, "x", 1, (0, u64::MAX), Mode::Exclusive));
    assert_eq!((told.client, told.range.offset(), world.state.totals().locks), (live.id, behind, count as usize + 1));
    world.state.unlock(Some(live.client), &lock, &file(1), Range::new(behind, 1).unwrap(), world.now).unwrap();
    assert!(world.lock(&other, &open_other, "x", 1, (0, u64::MAX), Mode::Exclusive).is_ok());
    assert_eq!(world.state.totals().locks, 1);
}

#[test]
fn source_that_fills_the_lock_queue_leaves_room_for_others() {
    let mut world = World::new();
    let peers = [(1, "a"), (1, "b"), (2, "c"), (3, "d")].map(|(last, name)| peer(&mut world, address(last), name).unwrap());
    let opens = peers.map(|peer| world.open(&peer, 1, 3, 0).unwrap());
    let wait = |world: &mut World, at: usize, owner: &str| {
        world.lock_call(&peers[at], &opens[at], owner, 1, (0, 10), Mode::Exclusive, true, false)
    };
    let lock = wait(&mut world, 0, "holder").unwrap();
    for number in 0..limits::WAITERS_PER_FILE_MAX {
        denied(wait(&mut world, 1, &number.to_string()));
    }
    let queued = |world: &World| {
        let file = world.state.files.find(&file(1)).unwrap();
        let waiters = &world.state.files[file].waiters;
        [1, 2, 3].map(|at| waiters.iter().filter(|waiter| waiter.client == peers[at].client).count())
    };
    let greedy = queued(&world)[0];
    assert!(greedy > limits::WAITERS_PER_FILE_MAX / 2 && greedy <= limits::WAITERS_PER_FILE_MAX / 5 * 4 + 4, "{greedy}");
    denied(wait(&mut world, 2, "x"));
    denied(wait(&mut world, 3, "x"));
    assert_eq!(queued(&world), [greedy, 1, 1]);
    world.callbacks();
    world.state.unlock(Some(peers[0].client), &lock, &file(1), Range::new(0, 10).unwrap(), 0).unwrap();
    assert_eq!(world.callbacks()[0].to, CallbackTo::Connection(peers[1].connection));
}
