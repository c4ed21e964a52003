use std::net::IpAddr;

use super::*;

pub(super) fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn fixture(clients_max: usize) -> Fixture {
    let mut config = config();
    config.limits.clients_max = clients_max;
    Fixture::with_config(config, &[])
}

fn exchange_id_from(
    fixture: &mut Fixture,
    from: IpAddr,
    name: &str,
) -> Result<ExchangedId, Status> {
    let owner = ClientOwner { verifier: Verifier([1; 8]), id: Bytes(name.as_bytes()) };
    let args = ExchangeIdArgs { owner, ..exchange_id_args("", 1) };
    let (state, now) = (&mut fixture.state, fixture.now);
    state.exchange_id(&args, Credential { address: from, ..sys(&user(0)) }, now)
}

fn confirm(fixture: &mut Fixture, from: IpAddr, exchanged: &ExchangedId) -> Result<Peer, Status> {
    let peer = fixture.confirm(exchanged, Credential { address: from, ..sys(&user(0)) })?;
    fixture.state.reclaim_complete(peer.client, false)?;
    Ok(peer)
}

pub(super) fn peer_from(fixture: &mut Fixture, from: IpAddr, name: &str) -> Result<Peer, Status> {
    let exchanged = exchange_id_from(fixture, from, name)?;
    confirm(fixture, from, &exchanged)
}

#[test]
fn exchange_id_flood_evicts_only_its_own_records() {
    let mut fixture = fixture(1000);
    let (flooder, other) = (address(1), address(2));
    let flood = |fixture: &mut Fixture, from: u32, count: u32| {
        (from..from + count).for_each(|number| {
            let _ = exchange_id_from(fixture, flooder, &number.to_string());
        });
    };
    flood(&mut fixture, 0, 500);
    let late = exchange_id_from(&mut fixture, other, "late").unwrap();
    flood(&mut fixture, 500, 5000);
    assert!(confirm(&mut fixture, other, &late).is_ok());
    assert!(fixture.state.totals().clients <= 1000 / limits::UNCONFIRMED_SHARE + 1);
    let totals = fixture.state.totals();
    assert!(totals.clients_displaced + totals.clients_refused >= 5000);
    let is_report = |effect: &StateEffect<Handle>| {
        matches!(
            effect,
            StateEffect::ClientEnded {
                why: crate::ClientEnd::Evicted | crate::ClientEnd::TableFull,
                ..
            }
        )
    };
    let reports =
        fixture.state.take_effects().iter().filter(|effect| is_report(effect)).count() as u64;
    assert_eq!(reports, totals.clients_displaced + totals.clients_refused);
    assert!(peer_from(&mut fixture, address(3), "new").is_ok());
}

#[test]
fn idle_client_flood_evicts_only_its_own_clients() {
    let mut fixture = fixture(40);
    let (flooder, other) = (address(1), address(2));
    let mut quiet = peer_from(&mut fixture, other, "quiet").unwrap();
    fixture.advance(10);
    let mut flood = Vec::new();
    for number in 0..200 {
        flood.push(peer_from(&mut fixture, flooder, &number.to_string()).unwrap());
        fixture.advance(limits::EVICTION_INTERVAL_MS);
    }
    assert_eq!(fixture.renew_lease(&mut flood[0]), Err(Status::BADSESSION));
    assert!(fixture.renew_lease(flood.last_mut().unwrap()).is_ok());
    let newcomers: Vec<Peer> = (3..9)
        .map(|last| peer_from(&mut fixture, address(last), &format!("new {last}")).unwrap())
        .collect();
    assert!(fixture.renew_lease(&mut quiet).is_ok());
    assert!(newcomers.into_iter().all(|mut peer| fixture.renew_lease(&mut peer).is_ok()));
}

#[test]
fn least_recently_used_idle_client_is_evicted_first() {
    let mut fixture = fixture(8);
    let host = address(100);
    let holders: Vec<Peer> = (1..=5u8)
        .map(|last| peer_from(&mut fixture, address(last), &last.to_string()).unwrap())
        .collect();
    for (number, holder) in holders.iter().enumerate() {
        fixture.open(holder, number as u8, 1, 0).unwrap();
    }
    let mut idle: Vec<Peer> = (0..3)
        .map(|number| peer_from(&mut fixture, host, &format!("idle {number}")).unwrap())
        .collect();
    fixture.advance(10);
    for at in [0, 2] {
        fixture.renew_lease(&mut idle[at]).unwrap();
    }
    assert!(peer_from(&mut fixture, address(200), "new").is_ok());
    let alive: Vec<bool> = idle.iter_mut().map(|peer| fixture.renew_lease(peer).is_ok()).collect();
    assert_eq!(alive, [true, false, true]);
    assert_eq!(fixture.open_files(), 5);
}

#[test]
fn clients_with_state_leave_room_for_other_sources() {
    let mut fixture = fixture(100);
    let greedy = address(1);
    let mut count = 0;
    let refused = loop {
        match peer_from(&mut fixture, greedy, &count.to_string()) {
            Ok(peer) => fixture.open(&peer, count, 1, 0).unwrap(),
            Err(status) => break status,
        };
        count += 1;
    };
    assert_eq!((refused, count), (Status::DELAY, 80), "four fifths");
    for last in 2..12 {
        let peer = peer_from(&mut fixture, address(last), &format!("new {last}")).unwrap();
        fixture.open(&peer, last, 1, 0).unwrap();
    }
    assert_eq!(fixture.open_files(), 90);
    assert_eq!(fixture.state.totals().clients_refused, 1);
    fixture.advance(LEASE_MS + 1);
    assert!(peer_from(&mut fixture, greedy, "again").is_ok());
    assert_eq!(fixture.open_files(), 89);
}

#[test]
fn cluster_behind_one_address_is_admitted() {
    let mut fixture = fixture(Limits::default().clients_max);
    let head = address(1);
    let nodes: Vec<ExchangedId> = (0..5000)
        .map(|number| exchange_id_from(&mut fixture, head, &format!("node {number}")).unwrap())
        .collect();
    for node in &nodes {
        confirm(&mut fixture, head, node).unwrap();
    }
    for number in 5000..20_000 {
        peer_from(&mut fixture, head, &format!("node {number}")).unwrap();
    }
    let totals = fixture.state.totals();
    assert_eq!((totals.clients, totals.clients_displaced, totals.clients_refused), (20_000, 0, 0));
}

#[test]
fn source_counts_return_to_zero() {
    let mut fixture = fixture(100);
    for number in 0..20u8 {
        let peer = peer_from(&mut fixture, address(number % 3), &number.to_string()).unwrap();
        if number % 2 == 0 {
            fixture.open(&peer, number, 1, 0).unwrap();
        }
        exchange_id_from(&mut fixture, address(number), &format!("only {number}")).unwrap();
    }
    fixture.advance(LEASE_MS + 1);
    fixture.advance(limits::COURTESY_MS + LEASE_MS);
    let sources =
        (0..20).map(|last| crate::state::quota::Source::Network(Network::V4([192, 0, 2, last])));
    assert_eq!(sources.map(|source| fixture.state.sources.clients_of(&source)).sum::<usize>(), 0);
    assert_eq!(fixture.state.unconfirmed_count, 0);
    assert_eq!(fixture.open_files(), 0);
}
