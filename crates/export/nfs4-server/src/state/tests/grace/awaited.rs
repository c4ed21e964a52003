//! Which clients grace waits for.

use super::*;

#[test]
fn grace_waits_only_for_clients_with_state() {
    let (mut store, (mut fixture, [mut a, mut b])) =
        (Store::default(), Fixture::with_peers(["a", "b"]));
    fixture.open(&a, 1, 3, 0).unwrap();
    for _ in 0..4 {
        fixture.advance(LEASE_MS / 2);
        for peer in [&mut a, &mut b] {
            fixture.renew_lease(peer).unwrap();
        }
    }
    let awaited = |fixture: &Fixture| -> Vec<_> {
        let status = fixture.state.status(fixture.now);
        assert_eq!(fixture.state.totals().awaited, status.awaited.len());
        status.awaited.into_iter().map(|one| (one.owner, one.is_back)).collect()
    };
    let mut after = store.restart_after(&mut fixture, 2);
    assert_eq!(awaited(&after), [("a".to_owned(), false)]);
    let back = after.reclaiming_peer("a", 1);
    assert_eq!(awaited(&after), [("a".to_owned(), true)]);
    reclaim(&mut after, &back).unwrap();
    reclaim_complete_for(&mut after, &back);
    assert!(!after.state.in_grace() && awaited(&after).is_empty());
    // Its record is made again with its next open.
    fixture.open(&b, 2, 3, 0).unwrap();
    assert_eq!(awaited(&store.restart_after(&mut fixture, 2)).len(), 2);
}

#[test]
fn v40_client_without_state_does_not_extend_grace() {
    let (mut store, mut fixture) = (Store::default(), Fixture::new());
    let peer = v40::v40_client(&mut fixture, "old");
    let stateid = v40::confirmed_open(&mut fixture, &peer);
    let renew = |fixture: &mut Fixture| {
        fixture.advance(LEASE_MS / 2);
        fixture.state.renew(peer.id, None, fixture.now).unwrap();
    };
    (0..4).for_each(|_| renew(&mut fixture));
    store.apply_effects(&mut fixture);
    assert!(store.clone().restart(2).state.in_grace());
    fixture.close(None, &stateid, 1).unwrap();
    (0..4).for_each(|_| renew(&mut fixture));
    store.apply_effects(&mut fixture);
    assert!(store.records.is_empty() && !store.clone().restart(2).state.in_grace());
    v40::open_next(&mut fixture, &peer, 3);
    store.apply_effects(&mut fixture);
    assert!(store.restart(2).state.in_grace());
}
