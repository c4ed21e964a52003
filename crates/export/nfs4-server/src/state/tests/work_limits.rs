use super::quota::{address, peer_from};
use super::*;

#[test]
fn expired_clients_are_removed_in_batches() {
    let mut fixture = Fixture::new();
    let count = limits::TIMERS_AT_ONCE * 3 + 5;
    assert!(
        (0..count).all(|number| peer_from(&mut fixture, address(1), &number.to_string()).is_ok())
    );
    fixture.now += LEASE_MS + 1;
    let mut parts = 0;
    while fixture.state.tick(fixture.now) <= fixture.now {
        parts += 1;
        assert!(
            fixture.state.totals().clients >= count - limits::TIMERS_AT_ONCE * parts,
            "at most one batch at once"
        );
    }
    assert_eq!((parts, fixture.state.totals().clients), (3, 0));
}

#[test]
fn expired_client_leaves_no_waiters_and_wait_list_is_bounded() {
    let (mut fixture, [a, b, c]) = Fixture::with_peers(["a", "b", "c"]);
    let wait_for_lock = |fixture: &mut Fixture, peer: &Peer, open: &Stateid, number| {
        fixture.wait_for_lock(peer, open, "l", number, (0, 10))
    };
    for number in 1..120 {
        let [holder_open, own_open, other] =
            [&a, &b, &c].map(|peer| fixture.open(peer, number, 3, 0).unwrap());
        let lock = fixture.lock(&a, &holder_open, "l", number, (0, 10), Mode::Exclusive).unwrap();
        assert!(
            wait_for_lock(&mut fixture, &b, &own_open, number).is_err()
                && wait_for_lock(&mut fixture, &c, &other, number).is_err()
        );
        if number > 10 {
            fixture.unlock(&a, &lock, number, (0, 10)).unwrap();
            wait_for_lock(&mut fixture, &b, &own_open, number).unwrap();
        }
    }
    let client = &fixture.state.clients[b.client];
    assert_eq!(client.waiters, 10);
    assert!(
        client.awaited_files.len() <= 2 * client.waiters + limits::OBSOLETE_WAITS_MIN,
        "{}",
        client.awaited_files.len()
    );
    fixture.state.expire(b.client);
    let waiters_of = |client| {
        fixture
            .state
            .files
            .table
            .iter()
            .flat_map(|(_, state)| &state.waiters)
            .filter(|waiter| waiter.client == client)
            .count()
    };
    assert_eq!((waiters_of(b.client), waiters_of(c.client)), (0, 119));
}
