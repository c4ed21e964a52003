//! Quotas of client records by source.

use std::net::IpAddr;

use super::*;

pub(super) fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn world(clients_max: usize) -> World {
    let mut config = config();
    config.limits.clients_max = clients_max;
    World::with(config, &[])
}

/// A client introduces itself from an address.
fn introduce(world: &mut World, from: IpAddr, name: &str) -> Result<Introduced, Status> {
    let owner = ClientOwner { verifier: Verifier([1; 8]), id: Bytes(name.as_bytes()) };
    let args = ExchangeIdArgs { owner, ..introduction("", 1) };
    let (state, now) = (&mut world.state, world.now);
    state.exchange_id(&args, Credential { address: from, ..sys(&user(0)) }, now)
}

/// It confirms itself with a session.
fn confirm(world: &mut World, from: IpAddr, introduced: &Introduced) -> Result<Peer, Status> {
    let connection = world.connection();
    let args = session_args(introduced.client, introduced.seq);
    let credential = user(0);
    let ok = world.state.create_session(&args, connection, Credential { address: from, ..sys(&credential) }, world.now)?;
    let client = world.state.client_by_id(introduced.client).unwrap();
    world.state.reclaim_complete(client, false)?;
    Ok(Peer { client, id: introduced.client, session: ok.session, connection, seq: SlotSeq(0) })
}

pub(super) fn peer(world: &mut World, from: IpAddr, name: &str) -> Result<Peer, Status> {
    let introduced = introduce(world, from, name)?;
    confirm(world, from, &introduced)
}

#[test]
fn flood_of_introductions_costs_only_its_source() {
    let mut world = world(1000);
    let (flooder, other) = (address(1), address(2));
    let flood = |world: &mut World, from: u32, count: u32| {
        (from..from + count).for_each(|number| {
            // Beyond its eviction scans the flooder is told to come later.
            let _ = introduce(world, flooder, &number.to_string());
        });
    };
    flood(&mut world, 0, 500);
    let late = introduce(&mut world, other, "late").unwrap();
    flood(&mut world, 500, 5000);
    assert!(confirm(&mut world, other, &late).is_ok());
    assert!(world.state.totals().clients <= 1000 / limits::UNCONFIRMED_SHARE + 1);
    assert!(world.state.totals().clients_displaced + world.state.totals().clients_refused >= 5000);
    // Another source gets in at once.
    assert!(peer(&mut world, address(3), "new").is_ok());
}

#[test]
fn flood_of_idle_clients_costs_only_its_source() {
    let mut world = world(40);
    let (flooder, other) = (address(1), address(2));
    // Silent for longer than any of the flood's.
    let mut quiet = peer(&mut world, other, "quiet").unwrap();
    world.pass(10);
    let mut flood = Vec::new();
    for number in 0..200 {
        flood.push(peer(&mut world, flooder, &number.to_string()).unwrap());
        world.pass(limits::EVICTION_INTERVAL_MS);
    }
    assert_eq!(world.beat(&mut flood[0]), Err(Status::BADSESSION));
    assert!(world.beat(flood.last_mut().unwrap()).is_ok());
    let newcomers: Vec<Peer> = (3..9).map(|last| peer(&mut world, address(last), &format!("new {last}")).unwrap()).collect();
    assert!(world.beat(&mut quiet).is_ok());
    assert!(newcomers.into_iter().all(|mut peer| world.beat(&mut peer).is_ok()));
}

#[test]
fn least_recently_used_idle_client_is_evicted_first() {
    let mut world = world(8);
    // All hold something but three of one host; of these the second was silent for longest.
    let host = address(100);
    let holders: Vec<Peer> = (1..=5u8).map(|last| peer(&mut world, address(last), &last.to_string()).unwrap()).collect();
    for (number, holder) in holders.iter().enumerate() {
        world.open(holder, number as u8, 1, 0).unwrap();
    }
    let mut idle: Vec<Peer> = (0..3).map(|number| peer(&mut world, host, &format!("idle {number}")).unwrap()).collect();
    world.pass(10);
    for at in [0, 2] {
        world.beat(&mut idle[at]).unwrap();
    }
    assert!(peer(&mut world, address(200), "new").is_ok());
    let alive: Vec<bool> = idle.iter_mut().map(|peer| world.beat(peer).is_ok()).collect();
    assert_eq!(alive, [true, false, true]);
    assert_eq!(world.open_files(), 5);
}

#[test]
fn clients_with_state_leave_room_for_other_sources() {
    let mut world = world(100);
    let greedy = address(1);
    let mut count = 0;
    let refused = loop {
        match peer(&mut world, greedy, &count.to_string()) {
            Ok(peer) => world.open(&peer, count, 1, 0).unwrap(),
            Err(status) => break status,
        };
        count += 1;
    };
    assert_eq!((refused, count), (Status::DELAY, 80), "four fifths");
    for last in 2..12 {
        let peer = peer(&mut world, address(last), &format!("new {last}")).unwrap();
        world.open(&peer, last, 1, 0).unwrap();
    }
    assert_eq!(world.open_files(), 90);
    assert_eq!(world.state.totals().clients_refused, 1);
    // Its own that are silent make way, and nobody else's.
    world.pass(LEASE_MS + 1);
    assert!(peer(&mut world, greedy, "again").is_ok());
    assert_eq!(world.open_files(), 89);
}

#[test]
fn cluster_behind_one_address_is_admitted() {
    let mut world = world(Limits::default().clients_max);
    let head = address(1);
    let nodes: Vec<Introduced> = (0..5000).map(|number| introduce(&mut world, head, &format!("node {number}")).unwrap()).collect();
    for node in &nodes {
        confirm(&mut world, head, node).unwrap();
    }
    for number in 5000..20_000 {
        peer(&mut world, head, &format!("node {number}")).unwrap();
    }
    let totals = world.state.totals();
    assert_eq!((totals.clients, totals.clients_displaced, totals.clients_refused), (20_000, 0, 0));
}

#[test]
fn counts_by_source_end_with_the_clients() {
    let mut world = world(100);
    for number in 0..20u8 {
        let peer = peer(&mut world, address(number % 3), &number.to_string()).unwrap();
        if number % 2 == 0 {
            world.open(&peer, number, 1, 0).unwrap();
        }
        introduce(&mut world, address(number), &format!("only {number}")).unwrap();
    }
    world.pass(LEASE_MS + 1);
    world.pass(limits::COURTESY_MS + LEASE_MS);
    let sources = (0..20).map(|last| crate::state::quota::Source::Network(Network::V4([192, 0, 2, last])));
    assert_eq!(sources.map(|source| world.state.sources.clients_of(&source)).sum::<usize>(), 0);
    assert_eq!(world.state.unconfirmed_count, 0);
    assert_eq!(world.open_files(), 0);
}
