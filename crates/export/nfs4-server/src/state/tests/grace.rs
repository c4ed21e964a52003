//! RFC 8881 §8.4.

mod awaited;

use vouch_nfs4::op::DelegationType;

use super::quota::address;

use super::*;

#[derive(Default, Clone)]
struct Store {
    records: Vec<(Vec<u8>, Vec<u8>)>,
    written_this_boot: Vec<Vec<u8>>,
}

impl Store {
    fn apply_effects(&mut self, fixture: &mut Fixture) {
        fixture.callbacks();
        for effect in fixture.effects.drain(..) {
            match effect {
                StateEffect::Persist { key, value } => {
                    self.records.retain(|(other, _)| *other != key);
                    self.written_this_boot.push(key.clone());
                    self.records.push((key, value));
                }
                StateEffect::Forget { key } => self.records.retain(|(other, _)| *other != key),
                StateEffect::GraceEnded => {
                    self.records.retain(|(key, _)| self.written_this_boot.contains(key))
                }
                _ => {}
            }
        }
    }

    fn restart(&mut self, boot: u64) -> Fixture {
        self.written_this_boot.clear();
        Fixture::with_config(StateConfig { boot, ..config() }, &self.recovery_records())
    }

    fn restart_after(&mut self, before: &mut Fixture, boot: u64) -> Fixture {
        self.apply_effects(before);
        self.restart(boot)
    }

    fn recovery_records(&self) -> Vec<RecoveryRecord> {
        self.records
            .iter()
            .map(|(key, value)| RecoveryRecord::from_bytes(key, value).unwrap())
            .collect()
    }

    fn restarted_with(
        change: impl Fn(RecoveryRecord) -> RecoveryRecord,
        records: Vec<RecoveryRecord>,
    ) -> Fixture {
        let records: Vec<_> = records.into_iter().map(change).collect();
        Fixture::with_config(StateConfig { boot: 2, ..config() }, &records)
    }
}

fn restarted_after_registration() -> Fixture {
    let (mut store, mut fixture) = (Store::default(), Fixture::new());
    fixture.peer("a");
    store.restart_after(&mut fixture, 2)
}

fn v40_record(creator: ClientPrincipal, from: Option<Network>) -> RecoveryRecord {
    RecoveryRecord {
        family: Family::V40,
        owner: b"a".to_vec(),
        verifier: Verifier([1; 8]),
        revoked: false,
        creator,
        from,
    }
}

fn register_v40(fixture: &mut Fixture, by: Credential<'_>) -> Result<ClientKey, SetClientError> {
    let owner = ClientOwner { verifier: Verifier([1; 8]), id: Bytes(b"a") };
    let (id, confirm) = fixture.state.set_client_id(&owner, Callback40::unknown(), by, 0)?;
    fixture.state.confirm_client(id, confirm, by, 0).map_err(SetClientError::Status)?;
    Ok(fixture.state.v40_client(id, None, 0).unwrap())
}

fn reclaim(fixture: &mut Fixture, peer: &Peer) -> Result<Opened, Status> {
    fixture.open_as(
        peer,
        "o",
        1,
        share(3, 0),
        Claim::Previous(DelegationType::None),
        Want::Unstated,
    )
}

#[test]
fn grace_allows_only_reclaims() {
    let (mut store, mut fixture) = (Store::default(), Fixture::new());
    let a = fixture.peer("a");
    let old = fixture.open(&a, 1, 3, 0).unwrap();
    let mut fixture = store.restart_after(&mut fixture, 2);
    assert!(fixture.state.in_grace());
    assert!(matches!(fixture.sequence_on(&a, 0, SlotSeq(1), false), Err(Status::BADSESSION)));
    let (a, b) = (fixture.reclaiming_peer("a", 1), fixture.reclaiming_peer("b", 1));
    assert_eq!(fixture.state.test_stateid(a.client, &old), Status::BAD_STATEID);
    assert_eq!(fixture.open(&a, 2, 1, 0), Err(Status::GRACE));
    assert_eq!(fixture.open(&b, 2, 1, 0), Err(Status::GRACE));
    assert_eq!(fixture.io(&b, &Stateid::ANONYMOUS, 1, Io::Read), Err(Status::GRACE));
    assert_eq!(reclaim(&mut fixture, &b), Err(Status::RECLAIM_BAD));
    let open = reclaim(&mut fixture, &a).unwrap().stateid;
    assert_eq!(
        fixture.lock(&a, &open, "x", 1, (0, 10), Mode::Exclusive),
        Err(Status::GRACE.into())
    );
    assert!(fixture.lock_call(&a, &open, "x", 1, (0, 10), Mode::Exclusive, false, true).is_ok());
    // §18.51.3.
    reclaim_complete_for(&mut fixture, &a);
    assert!(!fixture.state.in_grace());
    assert_eq!(reclaim(&mut fixture, &a), Err(Status::NO_GRACE));
    reclaim_complete_for(&mut fixture, &b);
    assert!(fixture.open(&b, 2, 1, 0).is_ok());
}

#[test]
fn grace_ends_after_its_period() {
    let mut fixture = restarted_after_registration();
    let mut b = fixture.reclaiming_peer("b", 1);
    reclaim_complete_for(&mut fixture, &b);
    assert_eq!(fixture.open(&b, 1, 1, 0), Err(Status::GRACE));
    fixture.advance(LEASE_MS - 1);
    fixture.renew_lease(&mut b).unwrap();
    assert_eq!(fixture.open(&b, 1, 1, 0), Err(Status::GRACE));
    fixture.advance(1);
    assert!(fixture.open(&b, 1, 1, 0).is_ok());
    let a = fixture.reclaiming_peer("a", 1);
    assert_eq!(reclaim(&mut fixture, &a), Err(Status::NO_GRACE));
}

fn restarted_after_open(store: &mut Store) -> Fixture {
    let (mut fixture, [a]) = Fixture::with_peers(["a"]);
    fixture.open(&a, 1, 2, 3).unwrap();
    store.restart_after(&mut fixture, 2)
}

#[test]
fn edge_conditions_forbid_reclaim() {
    // §8.4.3: an expired lease, and a missed grace period.
    let (mut store, (mut fixture, [a])) = (Store::default(), Fixture::with_peers(["a"]));
    fixture.open(&a, 1, 2, 3).unwrap();
    fixture.advance(LEASE_MS + 1);
    let b = fixture.peer("b");
    let open = fixture.open(&b, 1, 2, 3).unwrap();
    fixture.close(&b, &open, 1).unwrap();
    let mut fixture = store.restart_after(&mut fixture, 2);
    let a = fixture.reclaiming_peer("a", 1);
    assert_eq!(reclaim(&mut fixture, &a), Err(Status::RECLAIM_BAD));
    let b = fixture.reclaiming_peer("b", 1);
    reclaim_complete_for(&mut fixture, &b);
    assert!(!fixture.state.in_grace());

    let mut store = Store::default();
    let mut fixture = restarted_after_open(&mut store);
    fixture.advance(LEASE_MS);
    let b = fixture.peer("b");
    fixture.open(&b, 1, 2, 3).unwrap();
    let mut fixture = store.restart_after(&mut fixture, 3);
    let a = fixture.reclaiming_peer("a", 1);
    assert_eq!(reclaim(&mut fixture, &a), Err(Status::RECLAIM_BAD));
}

#[test]
fn restart_of_server_keeps_reclaim_right_and_restart_of_client_ends_it() {
    let mut store = Store::default();
    let mut fixture = restarted_after_open(&mut store);
    let a = fixture.reclaiming_peer("a", 1);
    reclaim(&mut fixture, &a).unwrap();
    let mut fixture = store.restart_after(&mut fixture, 3);
    let a = fixture.reclaiming_peer("a", 1);
    let delegated = fixture
        .open_as(&a, "o", 2, share(1, 0), Claim::Previous(DelegationType::Read), Want::Unstated)
        .unwrap();
    assert!(reclaim(&mut fixture, &a).is_ok() && matches!(delegated.delegation, Granted::Read(_)));
    let mut fixture = store.restart_after(&mut fixture, 4);
    let a = fixture.reclaiming_peer("a", 2);
    assert!(!fixture.state.in_grace(), "no client can reclaim");
    assert_eq!(reclaim(&mut fixture, &a), Err(Status::NO_GRACE));
}

fn register(
    fixture: &mut Fixture,
    name: &'static str,
    boot: u8,
    by: Credential<'_>,
) -> Result<Peer, Status> {
    let exchanged = fixture.state.exchange_id(&exchange_id_args(name, boot), by, fixture.now)?;
    fixture.confirm(&exchanged, by)
}

#[test]
fn reclaim_right_belongs_to_kerberos_principal() {
    let host = gss("host/a@R");
    let machine = Credential { flavour: Flavour::Krb5i, ..sys(&host) };
    for protected in [false, true] {
        let (mut store, mut fixture) = (Store::default(), Fixture::new());
        let no_operations = vouch_nfs4::StateProtectOps {
            must_enforce: vouch_nfs4::Bitmap::EMPTY,
            must_allow: vouch_nfs4::Bitmap::EMPTY,
        };
        let state_protect =
            if protected { StateProtect::MachineCred(no_operations) } else { StateProtect::None };
        let exchanged = fixture
            .state
            .exchange_id(&ExchangeIdArgs { state_protect, ..exchange_id_args("a", 1) }, machine, 0)
            .unwrap();
        let peer = fixture.confirm(&exchanged, machine).unwrap();
        reclaim_complete_for(&mut fixture, &peer);
        let mut fixture = store.restart_after(&mut fixture, 2);
        let (none, root, other) = (Principal::None, user(0), gss("host/b@R"));
        for (principal, flavour) in
            [(&none, Flavour::None), (&root, Flavour::Sys), (&other, Flavour::Krb5p)]
        {
            let by = Credential { flavour, ..sys(principal) };
            for boot in [1, 2] {
                assert_eq!(
                    register(&mut fixture, "a", boot, by).err(),
                    Some(Status::CLID_INUSE),
                    "{principal:?}"
                );
            }
            let another = register(&mut fixture, "b", 1, by).unwrap();
            reclaim_complete_for(&mut fixture, &another);
            fixture.state.destroy_session(&another.session, another.connection, by).unwrap();
            fixture.state.destroy_client(another.id, by).unwrap();
        }
        assert!(fixture.state.in_grace(), "the client has not returned");
        let weaker = Credential { flavour: Flavour::Krb5, ..machine };
        if protected {
            assert_eq!(register(&mut fixture, "a", 2, weaker).err(), Some(Status::CLID_INUSE));
        }
        let back =
            register(&mut fixture, "a", 1, if protected { machine } else { weaker }).unwrap();
        reclaim(&mut fixture, &back).unwrap();
        reclaim_complete_for(&mut fixture, &back);
        assert!(!fixture.state.in_grace());
    }
}

#[test]
fn unclaimed_client_owner_is_free_after_grace() {
    let host = gss("host/a@R");
    let (mut store, mut fixture) = (Store::default(), Fixture::new());
    let peer = register(&mut fixture, "a", 1, Credential { flavour: Flavour::Krb5, ..sys(&host) })
        .unwrap();
    reclaim_complete_for(&mut fixture, &peer);
    let mut fixture = store.restart_after(&mut fixture, 2);
    assert_eq!(fixture.exchange_id("a", 1, 0).err(), Some(Status::CLID_INUSE));
    fixture.advance(LEASE_MS);
    assert!(fixture.exchange_id("a", 1, 0).is_ok());
}

#[test]
fn auth_sys_state_is_reclaimed_under_any_named_principal() {
    let (mut store, mut fixture) = (Store::default(), Fixture::new());
    fixture.peer("a");
    store.apply_effects(&mut fixture);
    let host = gss("host/a@R");
    let (other, none) = (user(7), Principal::None);
    for by in [
        Credential { flavour: Flavour::Sys, ..sys(&other) },
        Credential { flavour: Flavour::Krb5, ..sys(&host) },
    ] {
        let mut fixture = store.clone().restart(2);
        assert_eq!(
            register(&mut fixture, "a", 1, Credential { flavour: Flavour::None, ..sys(&none) })
                .err(),
            Some(Status::CLID_INUSE)
        );
        let a = register(&mut fixture, "a", 1, by).unwrap();
        assert!(reclaim(&mut fixture, &a).is_ok());
    }
    let unknown = |record| RecoveryRecord { creator: ClientPrincipal::Unknown, ..record };
    let mut fixture = Store::restarted_with(unknown, store.recovery_records());
    let a = register(&mut fixture, "a", 1, Credential { flavour: Flavour::Krb5, ..sys(&host) })
        .unwrap();
    assert!(reclaim(&mut fixture, &a).is_ok());
}

#[test]
fn grace_waits_for_v40_kerberos_client() {
    // RFC 7530 §9.6.2 and 16.33.5.
    let (host, root) = (gss("host/a@R"), user(0));
    let record = v40_record(ClientPrincipal::of(&host, false), None);
    let mut fixture = Fixture::with_config(StateConfig { boot: 2, ..config() }, &[record]);
    let owner = |boot: u8| ClientOwner { verifier: Verifier([boot; 8]), id: Bytes(b"a") };
    for boot in [1, 2] {
        let refused =
            fixture.state.set_client_id(&owner(boot), Callback40::unknown(), sys(&root), 0);
        assert_eq!(refused, Err(SetClientError::InUse(Callback40::unknown())));
    }
    let machine = Credential { flavour: Flavour::Krb5, ..sys(&host) };
    let client = register_v40(&mut fixture, machine).unwrap();
    assert!(fixture.state.in_grace() && fixture.state.admit_reclaim(client, true).is_ok());
    // The right to reclaim protects its name.
    assert!(fixture.state.set_client_id(&owner(2), Callback40::unknown(), sys(&root), 0).is_err());
    assert!(fixture.state.clients.get(client).is_some());
}

fn sys_from(last: u8, principal: &Principal) -> Credential<'_> {
    Credential { address: address(last), ..sys(principal) }
}

fn reclaim_complete_for(fixture: &mut Fixture, peer: &Peer) {
    fixture.state.reclaim_complete(peer.client, false).unwrap();
}

fn after_restart() -> (Store, Fixture) {
    let (mut store, mut fixture) = (Store::default(), Fixture::new());
    let a = register(&mut fixture, "a", 1, sys_from(1, &user(0))).unwrap();
    reclaim_complete_for(&mut fixture, &a);
    store.apply_effects(&mut fixture);
    let fixture = store.restart(2);
    (store, fixture)
}

#[test]
fn auth_sys_client_reclaims_only_from_its_address() {
    let (mut store, mut fixture) = after_restart();
    let root = user(0);
    for boot in [2, 1] {
        let stranger = register(&mut fixture, "a", boot, sys_from(2, &root)).unwrap();
        assert_eq!(reclaim(&mut fixture, &stranger), Err(Status::RECLAIM_BAD));
        reclaim_complete_for(&mut fixture, &stranger);
        assert_eq!(fixture.open(&stranger, 2, 1, 0), Err(Status::GRACE));
        assert!(fixture.state.in_grace(), "the client has not returned");
        let reports = fixture.state.take_effects();
        let reports =
            reports.iter().filter(|effect| matches!(effect, StateEffect::AddressMismatch { owner, .. } if **owner == *b"a")).count();
        assert_eq!(reports, 1);
        if boot == 2 {
            fixture
                .state
                .destroy_session(&stranger.session, stranger.connection, sys_from(2, &root))
                .unwrap();
            fixture.state.destroy_client(stranger.id, sys_from(2, &root)).unwrap();
        }
    }
    store.apply_effects(&mut fixture);
    for mut fixture in [fixture, store.clone().restart(3)] {
        let back = register(&mut fixture, "a", 1, sys_from(1, &root)).unwrap();
        assert_eq!(fixture.state.totals().clients, 1);
        assert!(reclaim(&mut fixture, &back).is_ok());
        for boot in [1, 2] {
            assert_eq!(
                register(&mut fixture, "a", boot, sys_from(2, &root)).err(),
                Some(Status::DELAY)
            );
        }
        let next = session_args(back.id, CreateSeq(2));
        assert_eq!(
            fixture.state.create_session(&next, back.connection, sys_from(2, &root), 0).err(),
            Some(Status::DELAY)
        );
        assert!(
            fixture.state.create_session(&next, back.connection, sys_from(1, &root), 0).is_ok()
        );
        reclaim_complete_for(&mut fixture, &back);
        assert!(!fixture.state.in_grace());
    }
}

#[test]
fn client_at_new_address_continues_after_grace() {
    let (mut store, mut fixture) = after_restart();
    let root = user(0);
    let mut moved = register(&mut fixture, "a", 1, sys_from(2, &root)).unwrap();
    reclaim_complete_for(&mut fixture, &moved);
    fixture.advance(LEASE_MS / 2);
    fixture.renew_lease(&mut moved).unwrap();
    fixture.advance(LEASE_MS / 2);
    assert!(fixture.open(&moved, 1, 3, 0).is_ok());
    store.apply_effects(&mut fixture);
    for (last, outcome) in [(1, Some(Status::RECLAIM_BAD)), (2, None)] {
        let mut fixture = store.clone().restart(3);
        let peer = register(&mut fixture, "a", 1, sys_from(last, &root)).unwrap();
        assert_eq!(reclaim(&mut fixture, &peer).err(), outcome);
    }
}

#[test]
fn record_without_address_allows_reclaim_from_any_address() {
    let (store, _) = after_restart();
    let records = store.recovery_records();
    assert_eq!(records[0].from, Some(Network::of(address(1))));
    let mut fixture =
        Store::restarted_with(|record| RecoveryRecord { from: None, ..record }, records);
    let a = register(&mut fixture, "a", 1, sys_from(2, &user(0))).unwrap();
    assert!(reclaim(&mut fixture, &a).is_ok());
}

#[test]
fn v40_client_reclaims_only_from_its_address() {
    // RFC 7530 §9.6.2.
    let record = v40_record(ClientPrincipal::Sys, Some(Network::of(address(1))));
    let mut fixture = Fixture::with_config(StateConfig { boot: 2, ..config() }, &[record]);
    let root = user(0);
    let register_v40 =
        |fixture: &mut Fixture, last: u8| register_v40(fixture, sys_from(last, &root));
    let stranger = register_v40(&mut fixture, 2).unwrap();
    assert_eq!(fixture.state.admit_reclaim(stranger, true), Err(Status::RECLAIM_BAD));
    let back = register_v40(&mut fixture, 1).unwrap();
    assert!(fixture.state.in_grace() && fixture.state.admit_reclaim(back, true).is_ok());
    assert_eq!(register_v40(&mut fixture, 2), Err(SetClientError::Status(Status::DELAY)));
    assert_eq!(fixture.state.totals().clients, 1);

    // SETCLIENTID_CONFIRM records the new address.
    let (mut store, mut fixture) = (Store::default(), Fixture::new());
    let client = register_v40(&mut fixture, 1).unwrap();
    fixture.state.record(client, false);
    assert_eq!(register_v40(&mut fixture, 2), Ok(client));
    store.apply_effects(&mut fixture);
    for (last, outcome) in [(1, Err(Status::RECLAIM_BAD)), (2, Ok(()))] {
        let mut fixture = store.clone().restart(2);
        let client = register_v40(&mut fixture, last).unwrap();
        assert_eq!(fixture.state.admit_reclaim(client, true), outcome);
    }
}

#[test]
fn recovery_record_follows_address_of_open_connections() {
    // §2.10.5 and 8.4.2.1.
    let (mut store, mut fixture) = (Store::default(), Fixture::new());
    let root = user(0);
    let a = register(&mut fixture, "a", 1, sys_from(1, &root)).unwrap();
    reclaim_complete_for(&mut fixture, &a);
    let mut slot = 0;
    let mut call = |fixture: &mut Fixture, last: u8| {
        let peer = Peer { connection: fixture.new_connection(), ..a };
        slot += 1;
        fixture.sequence_from(address(last), &peer, slot, SlotSeq(1), false).unwrap();
        peer.connection
    };
    let mut assert_reclaims_from = |fixture: &mut Fixture, at: u8| {
        store.apply_effects(fixture);
        assert_eq!(
            fixture.state.peers_of(a.client, |_| None),
            [std::net::SocketAddr::new(address(at), 0)]
        );
        for last in [1, 2, 3] {
            let mut fixture = store.clone().restart(2);
            let peer = register(&mut fixture, "a", 1, sys_from(last, &root)).unwrap();
            assert_eq!(reclaim(&mut fixture, &peer).is_ok(), last == at, "{last}");
        }
    };
    let second = call(&mut fixture, 2);
    assert_reclaims_from(&mut fixture, 1);
    fixture.state.connection_closed(a.connection);
    assert_reclaims_from(&mut fixture, 2);
    let third = call(&mut fixture, 3);
    assert_reclaims_from(&mut fixture, 2);
    fixture.state.connection_closed(second);
    assert_reclaims_from(&mut fixture, 3);
    let fourth = call(&mut fixture, 1);
    assert_reclaims_from(&mut fixture, 1);
    fixture.state.connection_closed(fourth);
    assert_reclaims_from(&mut fixture, 3);
    fixture.state.connection_closed(third);
    assert_reclaims_from(&mut fixture, 3);
    let args = vouch_nfs4::op::BindConnArgs {
        session: a.session,
        dir: vouch_nfs4::op::ChannelDirClient::Fore,
        rdma: false,
    };
    let bound = fixture.new_connection();
    fixture.state.bind_connection(&args, bound, sys_from(2, &root)).unwrap();
    assert_reclaims_from(&mut fixture, 2);
    fixture.state.connection_closed(bound);
    let made = fixture.new_connection();
    fixture
        .state
        .create_session(&session_args(a.id, CreateSeq(2)), made, sys_from(3, &root), 0)
        .unwrap();
    assert_reclaims_from(&mut fixture, 3);
}

#[test]
fn name_of_certified_machine_waits_for_its_certificate() {
    let (mut store, mut fixture) = (Store::default(), Fixture::new());
    let root = user(0);
    let by = |machine| Credential { machine, ..sys(&root) };
    let a = register(&mut fixture, "a", 1, by(Some("node7"))).unwrap();
    reclaim_complete_for(&mut fixture, &a);
    let old = register_v40(&mut fixture, by(Some("node7"))).unwrap();
    fixture.state.record(old, false);
    store.apply_effects(&mut fixture);
    let mut fixture = store.restart(2);
    for other in [None, Some("node8")] {
        assert_eq!(register(&mut fixture, "a", 2, by(other)).err(), Some(Status::CLID_INUSE));
        assert!(register_v40(&mut fixture, by(other)).is_err());
    }
    let a = register(&mut fixture, "a", 1, by(Some("node7")));
    assert!(reclaim(&mut fixture, &a.unwrap()).is_ok());
    assert!(register_v40(&mut fixture, by(Some("node7"))).is_ok());
}

// Section 8.4.2.1.
#[test]
fn moved_client_reclaims_what_only_reads_a_tree() {
    let in_tree = FileKey::new(
        ExportId(1),
        vouch_vfs::FileId::new(b"path").unwrap(),
        Home { system: SystemId::of_tree(7), own_from: 0 },
    );
    let (in_grace, after_grace) = (restarted_after_registration(), Fixture::new());
    for (mut fixture, refusal) in [(in_grace, Status::RECLAIM_BAD), (after_grace, Status::NO_GRACE)]
    {
        let moved = fixture.reclaiming_peer("moved", 1);
        let claim = |fixture: &mut Fixture, file, share| {
            let claim = Claim::Previous(DelegationType::None);
            let call = OpenCall { file, claim, ..open_call(&moved, b"o", 1, share) };
            fixture.open_by(&call).map(|opened| opened.stateid)
        };
        assert_eq!(claim(&mut fixture, file(1), share(1, 0)), Err(refusal));
        for share in [share(2, 0), share(3, 0), share(1, 1), share(1, 3)] {
            assert_eq!(claim(&mut fixture, in_tree, share), Err(refusal), "{share:?}");
        }
        let open = claim(&mut fixture, in_tree, share(1, 2)).unwrap();
        let lock = |fixture: &mut Fixture, mode, reclaim| {
            let by = LockBy::New { open: &open, owner: b"x", seq: vouch_nfs4::OwnerSeq(0) };
            let call = LockCall {
                client: Some(moved.client),
                file: in_tree,
                by,
                range: Range::new(0, 10).unwrap(),
                mode,
                wait: false,
                reclaim,
            };
            fixture.state.lock(&call, fixture.now)
        };
        assert!(
            lock(&mut fixture, Mode::Shared, false).is_err(),
            "new locks wait for the end of reclaims"
        );
        assert!(lock(&mut fixture, Mode::Exclusive, true).is_err());
        assert!(lock(&mut fixture, Mode::Shared, true).is_ok());
        reclaim_complete_for(&mut fixture, &moved);
        fixture.state.connection_closed(moved.connection);
        let back = fixture.reclaiming_peer("moved", 1);
        assert_eq!(claim(&mut fixture, file(1), share(1, 0)), Err(Status::NO_GRACE));
        assert_eq!(claim(&mut fixture, in_tree, share(1, 0)).map(|stateid| stateid.seq.0), Ok(1));
        assert_eq!(claim(&mut fixture, in_tree, share(1, 2)).map(|stateid| stateid.seq.0), Ok(2));
        let totals = fixture.state.totals();
        assert_eq!(
            (back.client, totals.sessions, totals.opens, totals.locks),
            (moved.client, 1, 1, 0)
        );
        reclaim_complete_for(&mut fixture, &moved);
        assert_eq!(
            fixture.state.reclaim_complete(moved.client, false),
            Err(Status::COMPLETE_ALREADY)
        );
    }
}
