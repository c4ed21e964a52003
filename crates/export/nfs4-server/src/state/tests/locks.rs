//! RFC 8881 §9 and 18.10 to 18.12.

use super::quota::{address, peer_from};
use super::*;
use crate::CallbackTo;

fn expect_denied<T: std::fmt::Debug>(result: Result<T, LockError>) -> Denied {
    match result {
        Err(LockError::Denied(denied)) => denied,
        other => panic!("not denied: {other:?}"),
    }
}

#[test]
fn conflicting_lock_reports_owner_and_range() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let (open_a, open_b) = (fixture.open(&a, 1, 3, 0).unwrap(), fixture.open(&b, 1, 3, 0).unwrap());
    fixture.lock(&a, &open_a, "x", 1, (10, 10), Mode::Exclusive).unwrap();
    let conflict = expect_denied(fixture.lock(&b, &open_b, "y", 1, (0, u64::MAX), Mode::Shared));
    assert_eq!(
        (
            conflict.range.offset(),
            conflict.range.length(),
            conflict.mode,
            conflict.client,
            &*conflict.owner
        ),
        (10, 10, Mode::Exclusive, a.id, &b"x"[..])
    );
    assert!(fixture.lock(&b, &open_b, "y", 1, (0, 10), Mode::Exclusive).is_ok());
    let range = Range::new(15, 1).unwrap();
    let test = |fixture: &mut Fixture, peer: &Peer, owner: &str| {
        fixture.state.test_lock(peer.client, owner.as_bytes(), &file(1), range, Mode::Shared, 0)
    };
    assert_eq!(test(&mut fixture, &a, "x"), Ok(()));
    expect_denied(test(&mut fixture, &a, "y"));
    expect_denied(test(&mut fixture, &b, "x"));
}

#[test]
fn owner_changes_and_releases_part_of_its_lock() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let (open_a, open_b) = (fixture.open(&a, 1, 3, 0).unwrap(), fixture.open(&b, 1, 3, 0).unwrap());
    fixture.lock(&a, &open_a, "x", 1, (0, 100), Mode::Exclusive).unwrap();
    let lock = fixture.lock(&a, &open_a, "x", 1, (0, 50), Mode::Shared).unwrap();
    assert_eq!(lock.seq, vouch_nfs4::StateSeq(2));
    assert!(fixture.lock(&b, &open_b, "y", 1, (0, 50), Mode::Shared).is_ok());
    expect_denied(fixture.lock(&a, &open_a, "x", 1, (0, 100), Mode::Exclusive));
    fixture.unlock(&a, &lock, 1, (60, 10)).unwrap();
    assert_eq!(fixture.state.totals().locks, 4);
    assert!(fixture.lock(&b, &open_b, "y", 1, (60, 10), Mode::Exclusive).is_ok());
}

#[test]
fn lock_requires_matching_open_access() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    let open = fixture.open(&peer, 1, 1, 0).unwrap();
    assert_eq!(
        fixture.lock(&peer, &open, "x", 1, (0, 1), Mode::Exclusive),
        Err(Status::OPENMODE.into())
    );
    assert!(fixture.lock(&peer, &open, "x", 1, (0, 1), Mode::Shared).is_ok());
    assert_eq!(fixture.lock(&peer, &open, "x", 1, (0, 0), Mode::Shared), Err(Status::INVAL.into()));
}

struct Clients {
    fixture: Fixture,
    peers: Vec<Peer>,
    opens: Vec<Stateid>,
}

impl Clients {
    fn new(names: &[&'static str]) -> Self {
        let mut fixture = Fixture::new();
        let peers: Vec<Peer> = names.iter().map(|name| fixture.peer(name)).collect();
        let opens = peers.iter().map(|peer| fixture.open(peer, 1, 3, 0).unwrap()).collect();
        Clients { fixture, peers, opens }
    }

    fn wait(&mut self, at: usize, range: (u64, u64), mode: Mode) -> Result<Stateid, LockError> {
        self.fixture.lock_call(&self.peers[at], &self.opens[at], "x", 1, range, mode, true, false)
    }

    fn expect_wait(&mut self, at: usize, range: (u64, u64), mode: Mode) {
        expect_denied(self.wait(at, range, mode));
    }

    fn notified(&mut self) -> Vec<usize> {
        let position = |callback: OutgoingCallback| {
            assert!(
                matches!(&callback.op, CallbackOp::NotifyLock { owner, .. } if **owner == *b"x")
            );
            self.peers
                .iter()
                .position(|peer| callback.to == CallbackTo::Connection(peer.connection))
                .unwrap()
        };
        self.fixture.callbacks().into_iter().map(position).collect()
    }

    fn with_two_waiters() -> (Self, Stateid) {
        let mut clients = Clients::new(&["a", "b", "c"]);
        let lock = clients.wait(0, (0, 10), Mode::Exclusive).unwrap();
        clients.expect_wait(1, (0, 10), Mode::Exclusive);
        clients.expect_wait(2, (0, 10), Mode::Exclusive);
        clients.fixture.effects.clear();
        (clients, lock)
    }

    fn unlock(&mut self, at: usize, lock: &Stateid, range: (u64, u64)) -> Stateid {
        self.fixture.unlock(&self.peers[at], lock, 1, range).unwrap()
    }
}

#[test]
fn waiters_are_notified_in_order() {
    let (mut clients, lock) = Clients::with_two_waiters();
    clients.unlock(0, &lock, (0, 10));
    assert_eq!(clients.notified(), [1]);
    clients.expect_wait(2, (0, 10), Mode::Exclusive);
    let lock = clients.wait(1, (0, 10), Mode::Exclusive).unwrap();
    clients.expect_wait(2, (0, 10), Mode::Exclusive);
    clients.unlock(1, &lock, (0, 10));
    assert_eq!(clients.notified(), [2]);
}

#[test]
fn lock_downgrade_notifies_waiting_readers() {
    let mut clients = Clients::new(&["a", "b", "c"]);
    clients.wait(0, (0, 100), Mode::Exclusive).unwrap();
    clients.expect_wait(1, (0, 10), Mode::Shared);
    clients.expect_wait(2, (0, 10), Mode::Exclusive);
    clients.wait(0, (0, 100), Mode::Shared).unwrap();
    assert_eq!(clients.notified(), [1]);
    assert!(clients.wait(1, (0, 10), Mode::Shared).is_ok());
    clients.expect_wait(2, (0, 10), Mode::Exclusive);
}

#[test]
fn waiters_are_notified_repeatedly() {
    // §20.11: a lost callback must not cost a turn.
    let (mut clients, _) = Clients::with_two_waiters();
    clients.fixture.state.revoke_client(clients.peers[0].id);
    for at in [1, 2, 1, 2] {
        assert_eq!(clients.notified(), [at]);
        clients.fixture.advance(2500);
    }
    assert!(clients.wait(1, (0, 10), Mode::Exclusive).is_ok());
}

#[test]
fn unlock_notifies_only_waiters_for_freed_range() {
    let mut clients = Clients::new(&["a", "b", "c", "d"]);
    let lock = clients.wait(0, (0, 100), Mode::Exclusive).unwrap();
    for (at, range) in [(1, (0, 10)), (2, (5, 20)), (3, (50, 10))] {
        clients.expect_wait(at, range, Mode::Exclusive);
    }
    let lock = clients.unlock(0, &lock, (0, 10));
    assert_eq!(clients.notified(), [1]);
    let lock = clients.unlock(0, &lock, (10, 20));
    assert_eq!(clients.notified(), [0; 0]);
    clients.unlock(0, &lock, (30, 70));
    assert_eq!(clients.notified(), [3]);
    assert!(clients.wait(1, (0, 10), Mode::Exclusive).is_ok());
    assert!(clients.wait(3, (50, 10), Mode::Exclusive).is_ok());
}

#[test]
fn lock_of_silent_client_gives_way() {
    let (mut fixture, [a]) = Fixture::with_peers(["a"]);
    let open = fixture.open(&a, 1, 3, 0).unwrap();
    fixture.lock(&a, &open, "x", 1, (0, 10), Mode::Exclusive).unwrap();
    fixture.advance(LEASE_MS + 1);
    let b = fixture.peer("b");
    let open = fixture.open(&b, 1, 3, 0).unwrap();
    assert_eq!(fixture.state.totals().locks, 1);
    assert!(fixture.lock(&b, &open, "x", 1, (0, 10), Mode::Exclusive).is_ok());
    fixture.callbacks();
    let revoked = fixture.effects.iter().any(|effect| match effect {
        StateEffect::Persist { key, value } => {
            let record = RecoveryRecord::from_bytes(key, value).unwrap();
            record.owner == b"a" && record.revoked
        }
        _ => false,
    });
    assert!(revoked);
}

#[test]
fn lock_ranges_per_client_are_limited() {
    let mut fixture = Fixture::with_limits(|limits| limits.locks_per_client_max = 10);
    let peer = fixture.peer("a");
    let open = fixture.open(&peer, 1, 3, 0).unwrap();
    let mut lock = fixture.lock(&peer, &open, "x", 1, (0, 1000), Mode::Exclusive).unwrap();
    let outcome = (0..100).find_map(|at| match fixture.unlock(&peer, &lock, 1, (at * 3 + 1, 1)) {
        Ok(next) => {
            lock = next;
            None
        }
        Err(status) => Some(status),
    });
    assert_eq!(outcome, Some(Status::LOCK_RANGE));
    assert!(fixture.lock(&peer, &open, "y", 1, (5000, 1), Mode::Exclusive).is_err());
    assert!(fixture.unlock(&peer, &lock, 1, (0, 1000)).is_ok());
    assert_eq!(fixture.state.totals().locks, 0);
}

#[test]
fn lock_quota_of_source_leaves_room_for_others() {
    let mut fixture = Fixture::with_limits(|limits| limits.locks_max = 100);
    let (a, b) = (
        peer_from(&mut fixture, address(1), "a").unwrap(),
        peer_from(&mut fixture, address(1), "another name").unwrap(),
    );
    let c = peer_from(&mut fixture, address(2), "c").unwrap();
    let lock_until_refused = |fixture: &mut Fixture, peer: &Peer, number: u8| {
        let open = fixture.open(peer, number, 3, 0).unwrap();
        (0..100)
            .take_while(|&at| {
                fixture.lock(peer, &open, "x", number, (at * 2, 1), Mode::Exclusive).is_ok()
            })
            .count()
    };
    assert_eq!(
        (
            lock_until_refused(&mut fixture, &a, 1),
            lock_until_refused(&mut fixture, &b, 2),
            lock_until_refused(&mut fixture, &c, 3)
        ),
        (79, 0, 15)
    );
    let open = fixture.open(&a, 1, 3, 0).unwrap();
    assert_eq!(
        fixture.lock(&a, &open, "x", 1, (900, 1), Mode::Exclusive),
        Err(LockError::Status(Status::DELAY))
    );
}

#[test]
fn lock_owners_of_file_are_shared_between_hosts() {
    let mut fixture = Fixture::new();
    let peers =
        [1, 2].map(|last| peer_from(&mut fixture, address(last), &format!("{last}")).unwrap());
    let opens = peers.map(|peer| fixture.open(&peer, 1, 3, 0).unwrap());
    let mut lock_until_refused = |at: usize| {
        (0..limits::LOCK_OWNERS_PER_FILE_MAX)
            .take_while(|number| {
                fixture
                    .lock(
                        &peers[at],
                        &opens[at],
                        &format!("{at} {number}"),
                        1,
                        (0, 1),
                        Mode::Shared,
                    )
                    .is_ok()
            })
            .count()
    };
    let (first, second) = (lock_until_refused(0), lock_until_refused(1));
    assert!(
        first <= limits::LOCK_OWNERS_PER_FILE_MAX / 5 * 4 + 1 && second > 500,
        "{first} {second}"
    );
    let one_more = fixture.lock(&peers[0], &opens[0], "one more", 1, (0, 1), Mode::Shared);
    assert_eq!(
        one_more,
        Err(LockError::Status(Status::DELAY)),
        "DELAY, because 4.1 has no RESOURCE"
    );
}

#[test]
fn revoked_client_frees_locks_and_notifies_each_waiter_once() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    for number in 1..=2 {
        let (open_a, open_b) =
            (fixture.open(&a, number, 3, 0).unwrap(), fixture.open(&b, number, 3, 0).unwrap());
        for at in 0..50 {
            fixture.lock(&a, &open_a, &format!("x{at}"), number, (at, 1), Mode::Exclusive).unwrap();
        }
        expect_denied(fixture.wait_for_lock(&b, &open_b, "first", number, (0, 50)));
        expect_denied(fixture.wait_for_lock(&b, &open_b, "second", number, (40, 50)));
    }
    fixture.callbacks();
    fixture.state.revoke_client(a.id);
    let files = |callbacks: &[OutgoingCallback]| {
        let notified = callbacks.iter().filter_map(|callback| match &callback.op {
            CallbackOp::NotifyLock { file, owner } => Some((*file, owner.to_vec())),
            _ => None,
        });
        notified.collect::<Vec<_>>()
    };
    let mut notified = files(&fixture.callbacks());
    notified.sort_by_key(|(at, _)| *at != file(1));
    assert_eq!(notified, [(file(1), b"first".to_vec()), (file(2), b"first".to_vec())]);
    assert_eq!(fixture.state.totals().locks, 0);
}

#[test]
fn unlock_examines_all_waiters_in_few_steps() {
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let (open_a, open_b) = (fixture.open(&a, 1, 3, 0).unwrap(), fixture.open(&b, 1, 3, 0).unwrap());
    for at in 1..2000 {
        fixture.lock(&a, &open_a, &format!("x{at}"), 1, (1000 + at, 1), Mode::Exclusive).unwrap();
    }
    let last = fixture.lock(&a, &open_a, "last", 1, (0, 10), Mode::Exclusive).unwrap();
    let wait = |fixture: &mut Fixture, at: u64, length| {
        fixture.wait_for_lock(&b, &open_b, &format!("y{at}"), 1, (0, length))
    };
    let waiting = limits::WAITERS_PER_FILE_MAX as u64 / 2;
    (0..waiting).for_each(|at| drop(expect_denied(wait(&mut fixture, at, 10))));
    expect_denied(wait(&mut fixture, waiting, 5));
    fixture.callbacks();
    lock::interval_tree::take_steps();
    fixture.unlock(&a, &last, 1, (0, 5)).unwrap();
    let steps = lock::interval_tree::take_steps();
    assert!(steps < limits::WAITERS_PER_FILE_MAX * 12 * 12, "{steps}");
    assert_eq!(fixture.callbacks().len(), 1, "the last waiter is notified");
    assert!(wait(&mut fixture, waiting, 5).is_ok());
}

#[test]
fn lock_cost_does_not_grow_with_owners() {
    const OWNERS: u64 = 4096;
    let (mut fixture, [a, b]) = Fixture::with_peers(["a", "b"]);
    let (open_a, open_b) = (fixture.open(&a, 1, 3, 0).unwrap(), fixture.open(&b, 1, 3, 0).unwrap());
    for at in 0..OWNERS {
        fixture.lock(&a, &open_a, &format!("x{at}"), 1, (0, 100 + at), Mode::Shared).unwrap();
    }
    let log = OWNERS.ilog2() as usize;
    lock::interval_tree::take_steps();
    let lock = fixture.lock(&b, &open_b, "y", 1, (0, 1000), Mode::Shared).unwrap();
    expect_denied(fixture.lock(&b, &open_b, "z", 1, (100, 1000), Mode::Exclusive));
    let range = Range::new(0, 1000).unwrap();
    expect_denied(fixture.state.test_lock(b.client, b"z", &file(1), range, Mode::Exclusive, 0));
    let lock = fixture.state.unlock(Some(b.client), &lock, &file(1), range, 0).unwrap();
    fixture.state.free_stateid(b.client, &lock).unwrap();
    let steps = lock::interval_tree::take_steps();
    assert!(steps > 0 && steps < 50 * log, "{steps}");
    fixture.lock(&b, &open_b, "y", 1, (100 + OWNERS, 1), Mode::Exclusive).unwrap();
    let conflict = expect_denied(fixture.lock(
        &a,
        &open_a,
        "x0",
        1,
        (100 + OWNERS / 2, u64::MAX),
        Mode::Exclusive,
    ));
    assert_eq!((conflict.range.offset(), conflict.mode), (0, Mode::Shared));
    let conflict =
        expect_denied(fixture.lock(&a, &open_a, "x0", 1, (99 + OWNERS, u64::MAX), Mode::Shared));
    assert_eq!(
        (conflict.range.offset(), conflict.mode, conflict.client),
        (100 + OWNERS, Mode::Exclusive, b.id)
    );
}

#[test]
fn locks_of_many_silent_clients_give_way_at_once() {
    let mut fixture = Fixture::new();
    const SILENT: usize = limits::EXPIRED_SCAN_CLIENTS_MAX * 2 + 1;
    let names: Vec<String> = (0..SILENT).map(|at| format!("silent {at}")).collect();
    for name in &names {
        let peer = super::quota::peer_from(&mut fixture, address(1), name).unwrap();
        let open = fixture.open(&peer, 1, 1, 0).unwrap();
        fixture.lock(&peer, &open, "x", 1, (0, 10), Mode::Shared).unwrap();
    }
    fixture.advance(LEASE_MS + 1);
    let (b, c) = (fixture.peer("b"), fixture.peer("c"));
    let (open_b, open_c) = (fixture.open(&b, 1, 3, 0).unwrap(), fixture.open(&c, 1, 3, 0).unwrap());
    let lock = fixture.lock(&b, &open_b, "x", 1, (9, 1), Mode::Shared).unwrap();
    expect_denied(fixture.lock(&c, &open_c, "x", 1, (9, 10), Mode::Exclusive));
    assert!(fixture.state.totals().locks > 1);
    fixture.unlock(&b, &lock, 1, (9, 1)).unwrap();
    assert!(fixture.lock(&c, &open_c, "x", 1, (9, 10), Mode::Exclusive).is_ok());
    assert_eq!(fixture.state.totals().locks, 1);
}

#[test]
fn refused_lock_takes_nothing_from_silent_client() {
    let (mut fixture, [silent, mut live]) = Fixture::with_peers(["silent", "live"]);
    let [open, open_live] = [&silent, &live].map(|peer| fixture.open(peer, 1, 3, 0).unwrap());
    let (count, behind) = (limits::EXPIRED_SCAN_CLIENTS_MAX as u64 * 4, 1_000_000);
    for at in 0..count {
        fixture.lock(&silent, &open, "x", 1, (at * 2, 1), Mode::Exclusive).unwrap();
    }
    let lock = fixture.lock(&live, &open_live, "x", 1, (behind, 1), Mode::Exclusive).unwrap();
    fixture.advance(LEASE_MS - 10);
    fixture.renew_lease(&mut live).unwrap();
    fixture.advance(20);
    let other = fixture.peer("other");
    let open_other = fixture.open(&other, 1, 3, 0).unwrap();
    let conflict =
        expect_denied(fixture.lock(&other, &open_other, "x", 1, (0, u64::MAX), Mode::Exclusive));
    assert_eq!(
        (conflict.client, conflict.range.offset(), fixture.state.totals().locks),
        (live.id, behind, count as usize + 1)
    );
    fixture.unlock(&live, &lock, 1, (behind, 1)).unwrap();
    assert!(fixture.lock(&other, &open_other, "x", 1, (0, u64::MAX), Mode::Exclusive).is_ok());
    assert_eq!(fixture.state.totals().locks, 1);
}

#[test]
fn lock_queue_quota_of_source_leaves_room_for_others() {
    let mut fixture = Fixture::new();
    let peers = [(1, "a"), (1, "b"), (2, "c"), (3, "d")]
        .map(|(last, name)| peer_from(&mut fixture, address(last), name).unwrap());
    let opens = peers.map(|peer| fixture.open(&peer, 1, 3, 0).unwrap());
    let wait = |fixture: &mut Fixture, at: usize, owner: &str| {
        fixture.wait_for_lock(&peers[at], &opens[at], owner, 1, (0, 10))
    };
    let lock = wait(&mut fixture, 0, "holder").unwrap();
    for number in 0..limits::WAITERS_PER_FILE_MAX {
        expect_denied(wait(&mut fixture, 1, &number.to_string()));
    }
    let queued = |fixture: &Fixture| {
        let file = fixture.state.files.find(&file(1)).unwrap();
        let waiters = &fixture.state.files[file].waiters;
        [1, 2, 3]
            .map(|at| waiters.iter().filter(|waiter| waiter.client == peers[at].client).count())
    };
    let greedy = queued(&fixture)[0];
    assert!(
        greedy > limits::WAITERS_PER_FILE_MAX / 2
            && greedy <= limits::WAITERS_PER_FILE_MAX / 5 * 4 + 4,
        "{greedy}"
    );
    expect_denied(wait(&mut fixture, 2, "x"));
    expect_denied(wait(&mut fixture, 3, "x"));
    assert_eq!(queued(&fixture), [greedy, 1, 1]);
    fixture.callbacks();
    fixture.unlock(&peers[0], &lock, 1, (0, 10)).unwrap();
    assert_eq!(fixture.callbacks()[0].to, CallbackTo::Connection(peers[1].connection));
}
