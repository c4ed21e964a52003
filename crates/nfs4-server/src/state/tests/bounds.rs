//! What one client can bring about is done in parts, and by looks at what is its own.

use super::quota::{address, peer};
use super::*;

#[test]
fn where_much_is_due_others_have_their_turn_in_between() {
    let mut world = World::new();
    let count = limits::TIMERS_AT_ONCE * 3 + 5;
    assert!((0..count).all(|number| peer(&mut world, address(1), &number.to_string()).is_ok()));
    world.now += LEASE_MS + 1;
    let mut parts = 0;
    while world.state.tick(world.now) <= world.now {
        parts += 1;
        assert!(world.state.totals().clients >= count - limits::TIMERS_AT_ONCE * parts, "no more than that at once");
    }
    assert_eq!((parts, world.state.totals().clients), (3, 0));
}

#[test]
fn a_client_that_goes_waits_nowhere_and_what_is_known_of_its_waits_is_bounded() {
    let mut world = World::new();
    let (a, b, c) = (world.peer("a"), world.peer("b"), world.peer("c"));
    let wait = |world: &mut World, peer: &Peer, open: &Stateid, number| {
        world.lock_call(peer, open, "l", number, (0, 10), Mode::Exclusive, true, false)
    };
    for number in 1..120 {
        let [held, mine, other] = [&a, &b, &c].map(|peer| world.open(peer, number, 3, 0).unwrap());
        let lock = world.lock(&a, &held, "l", number, (0, 10), Mode::Exclusive).unwrap();
        assert!(wait(&mut world, &b, &mine, number).is_err() && wait(&mut world, &c, &other, number).is_err());
        if number > 10 {
            // It gets what it waited for.
            world.state.unlock(Some(a.client), &lock, &file(number), Range::new(0, 10).unwrap(), world.now).unwrap();
            wait(&mut world, &b, &mine, number).unwrap();
        }
    }
    let client = &world.state.clients[b.client];
    assert_eq!(client.waiters, 10);
    assert!(client.waits_at.len() <= 2 * client.waiters + limits::WAITS_FORGOTTEN_MIN, "{}", client.waits_at.len());
    world.state.expire(b.client);
    let waits =
        |client| world.state.files.table.iter().flat_map(|(_, state)| &state.waiters).filter(|waiter| waiter.client == client).count();
    assert_eq!((waits(b.client), waits(c.client)), (0, 119));
}
