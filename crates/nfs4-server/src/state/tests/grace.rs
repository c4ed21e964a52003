//! Grace and reclaim over restarts (RFC 8881, section 8.4).

use vouch_nfs4::op::DelegationType;

use super::quota::address;

use super::*;

/// What a store would hold after these effects.
#[derive(Default, Clone)]
struct Store {
    records: Vec<(Vec<u8>, Vec<u8>)>,
    /// Keys that were persisted in this life.
    fresh: Vec<Vec<u8>>,
}

impl Store {
    fn carry_out(&mut self, world: &mut World) {
        world.callbacks();
        for effect in world.effects.drain(..) {
            match effect {
                StateEffect::Persist { key, value } => {
                    self.records.retain(|(other, _)| *other != key);
                    self.fresh.push(key.clone());
                    self.records.push((key, value));
                }
                StateEffect::Forget { key } => self.records.retain(|(other, _)| *other != key),
                StateEffect::GraceEnded => self.records.retain(|(key, _)| self.fresh.contains(key)),
                StateEffect::Elsewhere { .. } | StateEffect::Callback(_) | StateEffect::Release(_) | StateEffect::Lost { .. } => {}
            }
        }
    }

    /// The server restarts.
    fn restart(&mut self, boot: u64) -> World {
        self.fresh.clear();
        let records: Vec<_> = self.records.iter().map(|(key, value)| RecoveryRecord::from_bytes(key, value).unwrap()).collect();
        World::with(StateConfig { boot, ..config() }, &records)
    }
}

fn reclaim(world: &mut World, peer: &Peer) -> Result<Opened, Status> {
    world.open_as(peer, "o", 1, share(3, 0), Claim::Previous(DelegationType::None), Want::Unstated)
}

#[test]
fn opens_and_locks_are_reclaimed_and_nothing_else_gets_in() {
    let (mut store, mut world) = (Store::default(), World::new());
    let a = world.peer("a");
    let old = world.open(&a, 1, 3, 0).unwrap();
    store.carry_out(&mut world);
    let mut world = store.restart(2);
    assert!(world.state.in_grace());
    // The old life is told.
    assert!(matches!(world.sequence_on(&a, 0, SlotSeq(1), false), Err(Status::BADSESSION)));
    let (a, b) = (world.returning("a", 1), world.returning("b", 1));
    assert_eq!(world.state.test_stateid(a.client, &old), Status::BAD_STATEID);
    assert_eq!(world.open(&a, 2, 1, 0), Err(Status::GRACE));
    assert_eq!(world.open(&b, 2, 1, 0), Err(Status::GRACE));
    assert_eq!(world.state.io(Some(b.client), &Stateid::ANONYMOUS, &file(1), Io::Read, 0), Err(Status::GRACE));
    assert_eq!(reclaim(&mut world, &b), Err(Status::RECLAIM_BAD));
    let open = reclaim(&mut world, &a).unwrap().stateid;
    assert_eq!(world.lock(&a, &open, "x", 1, (0, 10), Mode::Exclusive), Err(Status::GRACE.into()));
    assert!(world.lock_call(&a, &open, "x", 1, (0, 10), Mode::Exclusive, false, true).is_ok());
    // Section 18.51.3: when all are done, grace is over.
    world.state.reclaim_complete(a.client, false).unwrap();
    assert!(!world.state.in_grace());
    assert_eq!(reclaim(&mut world, &a), Err(Status::NO_GRACE));
    world.state.reclaim_complete(b.client, false).unwrap();
    assert!(world.open(&b, 2, 1, 0).is_ok());
}

#[test]
fn nobody_waits_for_a_client_of_4_0_that_holds_nothing() {
    let (mut store, mut world) = (Store::default(), World::new());
    let peer = v40::client(&mut world, "old");
    let stateid = v40::open(&mut world, &peer);
    // While it holds something it is recorded, however often it is looked at.
    let beat = |world: &mut World| {
        world.pass(LEASE_MS / 2);
        world.state.renew(peer.id, None, world.now).unwrap();
    };
    (0..4).for_each(|_| beat(&mut world));
    store.carry_out(&mut world);
    assert!(store.clone().restart(2).state.in_grace());
    world.state.close(None, &stateid, &file(1), world.now).unwrap();
    (0..4).for_each(|_| beat(&mut world));
    store.carry_out(&mut world);
    assert!(store.records.is_empty() && !store.clone().restart(2).state.in_grace());
    // What it opens then is recorded again.
    v40::open_next(&mut world, &peer, 3);
    store.carry_out(&mut world);
    assert!(store.restart(2).state.in_grace());
}

#[test]
fn grace_ends_by_its_time() {
    let (mut store, mut world) = (Store::default(), World::new());
    world.peer("a");
    store.carry_out(&mut world);
    let mut world = store.restart(2);
    let mut b = world.returning("b", 1);
    world.state.reclaim_complete(b.client, false).unwrap();
    assert_eq!(world.open(&b, 1, 1, 0), Err(Status::GRACE));
    world.pass(LEASE_MS - 1);
    world.beat(&mut b).unwrap();
    assert_eq!(world.open(&b, 1, 1, 0), Err(Status::GRACE));
    world.pass(1);
    assert!(world.open(&b, 1, 1, 0).is_ok());
    let a = world.returning("a", 1);
    assert_eq!(reclaim(&mut world, &a), Err(Status::NO_GRACE));
}

#[test]
fn first_edge_what_was_given_to_another_is_not_reclaimed() {
    // Section 8.4.3: the lease runs out, another gets the lock and gives it back, the server restarts.
    let (mut store, mut world) = (Store::default(), World::new());
    let a = world.peer("a");
    world.open(&a, 1, 2, 3).unwrap();
    world.pass(LEASE_MS + 1);
    let b = world.peer("b");
    let open = world.open(&b, 1, 2, 3).unwrap();
    world.state.close(Some(b.client), &open, &file(1), world.now).unwrap();
    store.carry_out(&mut world);
    let mut world = store.restart(2);
    let a = world.returning("a", 1);
    assert_eq!(reclaim(&mut world, &a), Err(Status::RECLAIM_BAD));
    // And it does not keep grace open.
    let b = world.returning("b", 1);
    world.state.reclaim_complete(b.client, false).unwrap();
    assert!(!world.state.in_grace());
}

#[test]
fn second_edge_what_was_not_reclaimed_before_is_not_reclaimed_later() {
    // Section 8.4.3: the server restarts twice, and between another had the lock.
    let (mut store, mut world) = (Store::default(), World::new());
    let a = world.peer("a");
    world.open(&a, 1, 2, 3).unwrap();
    store.carry_out(&mut world);
    let mut world = store.restart(2);
    world.pass(LEASE_MS);
    let b = world.peer("b");
    world.open(&b, 1, 2, 3).unwrap();
    store.carry_out(&mut world);
    let mut world = store.restart(3);
    let a = world.returning("a", 1);
    assert_eq!(reclaim(&mut world, &a), Err(Status::RECLAIM_BAD));
}

#[test]
fn a_restart_within_grace_loses_nothing() {
    let (mut store, mut world) = (Store::default(), World::new());
    let a = world.peer("a");
    world.open(&a, 1, 2, 3).unwrap();
    store.carry_out(&mut world);
    let mut world = store.restart(2);
    let a = world.returning("a", 1);
    reclaim(&mut world, &a).unwrap();
    store.carry_out(&mut world);
    let mut world = store.restart(3);
    let a = world.returning("a", 1);
    assert!(reclaim(&mut world, &a).is_ok());
}

#[test]
fn a_client_that_restarted_too_has_nothing_to_reclaim() {
    let (mut store, mut world) = (Store::default(), World::new());
    world.peer("a");
    store.carry_out(&mut world);
    let mut world = store.restart(2);
    let a = world.returning("a", 2);
    assert!(!world.state.in_grace(), "nobody is waited for");
    assert_eq!(reclaim(&mut world, &a), Err(Status::NO_GRACE));
}

#[test]
fn delegations_are_reclaimed_with_their_opens() {
    let (mut store, mut world) = (Store::default(), World::new());
    world.peer("a");
    store.carry_out(&mut world);
    let mut world = store.restart(2);
    let a = world.returning("a", 1);
    let opened = world.open_as(&a, "o", 1, share(1, 0), Claim::Previous(DelegationType::Read), Want::Unstated).unwrap();
    assert!(matches!(opened.delegation, Granted::Read(_)));
}

fn proven(name: &str) -> Principal {
    Principal::Gss { name: name.into() }
}

/// Introduces a client and gives it a session.
fn enter(world: &mut World, name: &'static str, life: u8, by: Credential<'_>) -> Result<Peer, Status> {
    let introduced = world.state.exchange_id(&introduction(name, life), by, world.now)?;
    let connection = world.connection();
    let ok = world.state.create_session(&session_args(introduced.client, introduced.seq), connection, by, world.now)?;
    let client = world.state.client_by_id(introduced.client).unwrap();
    Ok(Peer { client, id: introduced.client, session: ok.session, connection, seq: SlotSeq(0) })
}

#[test]
fn what_a_proven_client_held_waits_for_it_alone() {
    // Sections 2.4.3 and 8.4.2.1.
    let host = proven("host/a@R");
    let machine = Credential { flavour: Flavour::Krb5i, ..sys(&host) };
    for protected in [false, true] {
        let (mut store, mut world) = (Store::default(), World::new());
        let protect = vouch_nfs4::StateProtectOps { must_enforce: vouch_nfs4::Bitmap::EMPTY, must_allow: vouch_nfs4::Bitmap::EMPTY };
        let state_protect = if protected { StateProtect::MachineCred(protect) } else { StateProtect::None };
        let introduced = world.state.exchange_id(&ExchangeIdArgs { state_protect, ..introduction("a", 1) }, machine, 0).unwrap();
        let connection = world.connection();
        world.state.create_session(&session_args(introduced.client, introduced.seq), connection, machine, 0).unwrap();
        let client = world.state.client_by_id(introduced.client).unwrap();
        world.state.reclaim_complete(client, false).unwrap();
        store.carry_out(&mut world);
        let mut world = store.restart(2);
        let (nobody, root, other) = (Principal::None, user(0), proven("host/b@R"));
        for (principal, flavour) in [(&nobody, Flavour::None), (&root, Flavour::Sys), (&other, Flavour::Krb5p)] {
            let by = Credential { flavour, ..sys(principal) };
            for life in [1, 2] {
                assert_eq!(enter(&mut world, "a", life, by).err(), Some(Status::CLID_INUSE), "{principal:?}");
            }
            // Another name is anybody's.
            let another = enter(&mut world, "b", 1, by).unwrap();
            world.state.reclaim_complete(another.client, false).unwrap();
            world.state.destroy_session(&another.session, another.connection, by).unwrap();
            world.state.destroy_client(another.id, by).unwrap();
        }
        assert!(world.state.in_grace(), "it has not come yet");
        let weaker = Credential { flavour: Flavour::Krb5, ..machine };
        if protected {
            assert_eq!(enter(&mut world, "a", 2, weaker).err(), Some(Status::CLID_INUSE));
        }
        let back = enter(&mut world, "a", 1, if protected { machine } else { weaker }).unwrap();
        reclaim(&mut world, &back).unwrap();
        world.state.reclaim_complete(back.client, false).unwrap();
        assert!(!world.state.in_grace());
    }
}

#[test]
fn a_name_that_nobody_came_back_to_is_free_after_grace() {
    let host = proven("host/a@R");
    let (mut store, mut world) = (Store::default(), World::new());
    let peer = enter(&mut world, "a", 1, Credential { flavour: Flavour::Krb5, ..sys(&host) }).unwrap();
    world.state.reclaim_complete(peer.client, false).unwrap();
    store.carry_out(&mut world);
    let mut world = store.restart(2);
    assert_eq!(world.introduce("a", 1, 0).err(), Some(Status::CLID_INUSE));
    world.pass(LEASE_MS);
    assert!(world.introduce("a", 1, 0).is_ok());
}

#[test]
fn what_was_held_by_who_proved_nothing_is_reclaimed_by_who_says_who_he_is() {
    let (mut store, mut world) = (Store::default(), World::new());
    world.peer("a");
    store.carry_out(&mut world);
    let host = proven("host/a@R");
    let (other, nobody) = (user(7), Principal::None);
    for by in [Credential { flavour: Flavour::Sys, ..sys(&other) }, Credential { flavour: Flavour::Krb5, ..sys(&host) }] {
        let mut world = store.clone().restart(2);
        assert_eq!(enter(&mut world, "a", 1, Credential { flavour: Flavour::None, ..sys(&nobody) }).err(), Some(Status::CLID_INUSE));
        let a = enter(&mut world, "a", 1, by).unwrap();
        assert!(reclaim(&mut world, &a).is_ok());
    }
    // Of a server that did not keep who it was.
    let records: Vec<_> = store.records.iter().map(|(key, value)| RecoveryRecord::from_bytes(key, value).unwrap()).collect();
    let records: Vec<_> = records.into_iter().map(|record| RecoveryRecord { maker: ClientPrincipal::Unknown, ..record }).collect();
    let mut world = World::with(StateConfig { boot: 2, ..config() }, &records);
    let a = enter(&mut world, "a", 1, Credential { flavour: Flavour::Krb5, ..sys(&host) }).unwrap();
    assert!(reclaim(&mut world, &a).is_ok());
}

#[test]
fn a_client_of_4_0_that_was_proven_is_waited_for_likewise() {
    // RFC 7530, sections 9.6.2 and 16.33.5.
    let (host, root) = (proven("host/a@R"), user(0));
    let record = RecoveryRecord {
        family: Family::V40,
        owner: b"a".to_vec(),
        verifier: Verifier([1; 8]),
        revoked: false,
        maker: ClientPrincipal::of(&host, false),
        from: None,
    };
    let mut world = World::with(StateConfig { boot: 2, ..config() }, &[record]);
    let owner = |life: u8| ClientOwner { verifier: Verifier([life; 8]), id: Bytes(b"a") };
    for life in [1, 2] {
        let refused = world.state.set_client(&owner(life), Callback40::unknown(), sys(&root), 0);
        assert_eq!(refused, Err(SetClientError::InUse(Callback40::unknown())));
    }
    let machine = Credential { flavour: Flavour::Krb5, ..sys(&host) };
    let (id, confirm) = world.state.set_client(&owner(1), Callback40::unknown(), machine, 0).unwrap();
    world.state.confirm_client(id, confirm, machine, 0).unwrap();
    let client = world.state.client_of_40(id, None, 0).unwrap();
    assert!(world.state.in_grace() && world.state.admit_reclaim(client).is_ok());
    // It holds nothing yet, so that another could have its name if it did not wait.
    assert!(world.state.set_client(&owner(2), Callback40::unknown(), sys(&root), 0).is_err());
    assert!(world.state.client_of_40(id, None, 0).is_ok());
}

fn from(last: u8, principal: &Principal) -> Credential<'_> {
    Credential { address: address(last), ..sys(principal) }
}

/// A client of 4.1 that says that it has nothing to reclaim, or nothing more.
fn complete(world: &mut World, peer: &Peer) {
    world.state.reclaim_complete(peer.client, false).unwrap();
}

/// After a restart, with a client named "a" from the first address that may reclaim.
fn after_restart() -> (Store, World) {
    let (mut store, mut world) = (Store::default(), World::new());
    let a = enter(&mut world, "a", 1, from(1, &user(0))).unwrap();
    complete(&mut world, &a);
    store.carry_out(&mut world);
    let world = store.restart(2);
    (store, world)
}

#[test]
fn what_an_unproven_client_held_waits_for_who_calls_from_where_it_was() {
    // Sections 2.4.3 and 8.4.2.1.
    let (mut store, mut world) = after_restart();
    let root = user(0);
    // Whoever comes from elsewhere, as the same life or as another, gets in and nothing of it.
    for life in [2, 1] {
        let stranger = enter(&mut world, "a", life, from(2, &root)).unwrap();
        assert_eq!(reclaim(&mut world, &stranger), Err(Status::RECLAIM_BAD));
        complete(&mut world, &stranger);
        assert_eq!(world.open(&stranger, 2, 1, 0), Err(Status::GRACE));
        assert!(world.state.in_grace(), "the other has not come");
        let told = world.state.take_effects();
        let told = told.iter().filter(|effect| matches!(effect, StateEffect::Elsewhere { owner, .. } if **owner == *b"a")).count();
        assert_eq!(told, 1);
        if life == 2 {
            world.state.destroy_session(&stranger.session, stranger.connection, from(2, &root)).unwrap();
            world.state.destroy_client(stranger.id, from(2, &root)).unwrap();
        }
    }
    store.carry_out(&mut world);
    // Also over one more restart; and who has the name meanwhile makes way.
    for mut world in [world, store.clone().restart(3)] {
        let back = enter(&mut world, "a", 1, from(1, &root)).unwrap();
        assert_eq!(world.state.totals().clients, 1);
        assert!(reclaim(&mut world, &back).is_ok());
        // Now that it is there, nobody from elsewhere is taken for it.
        for life in [1, 2] {
            assert_eq!(enter(&mut world, "a", life, from(2, &root)).err(), Some(Status::DELAY));
        }
        let next = session_args(back.id, CreateSeq(2));
        assert_eq!(world.state.create_session(&next, back.connection, from(2, &root), 0).err(), Some(Status::DELAY));
        assert!(world.state.create_session(&next, back.connection, from(1, &root), 0).is_ok());
        complete(&mut world, &back);
        assert!(!world.state.in_grace());
    }
}

#[test]
fn a_client_whose_address_has_changed_goes_on_when_grace_is_over() {
    let (mut store, mut world) = after_restart();
    let root = user(0);
    let mut moved = enter(&mut world, "a", 1, from(2, &root)).unwrap();
    complete(&mut world, &moved);
    world.pass(LEASE_MS / 2);
    world.beat(&mut moved).unwrap();
    world.pass(LEASE_MS / 2);
    assert!(world.open(&moved, 1, 3, 0).is_ok());
    // Its record is of where it is now.
    store.carry_out(&mut world);
    for (last, outcome) in [(1, Some(Status::RECLAIM_BAD)), (2, None)] {
        let mut world = store.clone().restart(3);
        let peer = enter(&mut world, "a", 1, from(last, &root)).unwrap();
        assert_eq!(reclaim(&mut world, &peer).err(), outcome);
    }
}

#[test]
fn a_record_that_tells_no_address_is_anybodys_who_says_who_he_is() {
    let (store, _) = after_restart();
    let records: Vec<_> = store.records.iter().map(|(key, value)| RecoveryRecord::from_bytes(key, value).unwrap()).collect();
    assert_eq!(records[0].from, Some(Network::of(address(1))));
    let records: Vec<_> = records.into_iter().map(|record| RecoveryRecord { from: None, ..record }).collect();
    let mut world = World::with(StateConfig { boot: 2, ..config() }, &records);
    let a = enter(&mut world, "a", 1, from(2, &user(0))).unwrap();
    assert!(reclaim(&mut world, &a).is_ok());
}

#[test]
fn a_client_of_4_0_reclaims_from_where_it_was_alone() {
    // RFC 7530, section 9.6.2.
    let record = RecoveryRecord {
        family: Family::V40,
        owner: b"a".to_vec(),
        verifier: Verifier([1; 8]),
        revoked: false,
        maker: ClientPrincipal::Sys,
        from: Some(Network::of(address(1))),
    };
    let mut world = World::with(StateConfig { boot: 2, ..config() }, &[record]);
    let root = user(0);
    let owner = ClientOwner { verifier: Verifier([1; 8]), id: Bytes(b"a") };
    let come = |world: &mut World, last: u8| {
        let (id, confirm) = world.state.set_client(&owner, Callback40::unknown(), from(last, &root), 0)?;
        world.state.confirm_client(id, confirm, from(last, &root), 0).map_err(SetClientError::Status)?;
        Ok::<_, SetClientError>(world.state.client_of_40(id, None, 0).unwrap())
    };
    let stranger = come(&mut world, 2).unwrap();
    assert_eq!(world.state.admit_reclaim(stranger), Err(Status::RECLAIM_BAD));
    let back = come(&mut world, 1).unwrap();
    assert!(world.state.in_grace() && world.state.admit_reclaim(back).is_ok());
    assert_eq!(come(&mut world, 2), Err(SetClientError::Status(Status::DELAY)));
    assert_eq!(world.state.totals().clients, 1);
}

#[test]
fn a_client_that_moves_and_goes_on_by_its_session_reclaims_from_where_it_is() {
    // RFC 8881, sections 2.10.5 and 8.4.2.1.
    let (mut store, mut world) = (Store::default(), World::new());
    let root = user(0);
    let a = enter(&mut world, "a", 1, from(1, &root)).unwrap();
    complete(&mut world, &a);
    let mut slot = 0;
    let mut call = |world: &mut World, last: u8| {
        let peer = Peer { connection: world.connection(), ..a };
        slot += 1;
        world.sequence_from(address(last), &peer, slot, SlotSeq(1), false).unwrap();
        peer.connection
    };
    let mut is_at = |world: &mut World, at: u8| {
        store.carry_out(world);
        assert_eq!(world.state.peers_of(a.client, |_| None), [std::net::SocketAddr::new(address(at), 0)]);
        for last in [1, 2, 3] {
            let mut world = store.clone().restart(2);
            let peer = enter(&mut world, "a", 1, from(last, &root)).unwrap();
            assert_eq!(reclaim(&mut world, &peer).is_ok(), last == at, "{last}");
        }
    };
    let second = call(&mut world, 2);
    is_at(&mut world, 1);
    world.state.connection_closed(a.connection);
    is_at(&mut world, 2);
    let third = call(&mut world, 3);
    is_at(&mut world, 2);
    world.state.connection_closed(second);
    is_at(&mut world, 3);
    let home = call(&mut world, 1);
    is_at(&mut world, 1);
    world.state.connection_closed(home);
    is_at(&mut world, 3);
    world.state.connection_closed(third);
    is_at(&mut world, 3);
    // It binds a connection, or makes another session, before it calls.
    let args = vouch_nfs4::op::BindConnArgs { session: a.session, dir: vouch_nfs4::op::ChannelDirClient::Fore, rdma: false };
    let bound = world.connection();
    world.state.bind_connection(&args, bound, from(2, &root)).unwrap();
    is_at(&mut world, 2);
    world.state.connection_closed(bound);
    let made = world.connection();
    world.state.create_session(&session_args(a.id, CreateSeq(2)), made, from(3, &root), 0).unwrap();
    is_at(&mut world, 3);
}

#[test]
fn a_client_of_4_0_that_confirms_another_callback_is_where_it_does_so() {
    let (mut store, mut world) = (Store::default(), World::new());
    let root = user(0);
    let owner = ClientOwner { verifier: Verifier([1; 8]), id: Bytes(b"a") };
    let come = |world: &mut World, last: u8| {
        let (id, confirm) = world.state.set_client(&owner, Callback40::unknown(), from(last, &root), 0).unwrap();
        world.state.confirm_client(id, confirm, from(last, &root), 0).unwrap();
        world.state.client_of_40(id, None, 0).unwrap()
    };
    let client = come(&mut world, 1);
    world.state.record(client, false);
    assert_eq!(come(&mut world, 2), client);
    store.carry_out(&mut world);
    for (last, outcome) in [(1, Err(Status::RECLAIM_BAD)), (2, Ok(()))] {
        let mut world = store.clone().restart(2);
        let client = come(&mut world, last);
        assert_eq!(world.state.admit_reclaim(client), outcome);
    }
}
