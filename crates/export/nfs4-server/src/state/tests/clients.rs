//! RFC 8881 §18.35, 18.36, 18.50.

use vouch_nfs4::op::{BindConnArgs, ChannelDirClient, ExchangeIdFlags};
use vouch_nfs4::{Bitmap, CreateSeq, StateProtect, StateProtectOps};

use super::*;
use crate::ClientEnd;

fn update_client(
    fixture: &mut Fixture,
    name: &'static str,
    boot: u8,
    uid: u32,
) -> Result<ExchangedId, Status> {
    let args = ExchangeIdArgs {
        flags: ExchangeIdFlags::UPD_CONFIRMED_REC_A,
        ..exchange_id_args(name, boot)
    };
    fixture.state.exchange_id(&args, sys(&user(uid)), fixture.now)
}

#[test]
fn exchange_id_replaces_unconfirmed_and_returns_confirmed_client() {
    // §18.35.4, cases 1 and 4.
    let mut fixture = Fixture::new();
    let [first, second] = [(); 2].map(|()| fixture.exchange_id("a", 1, 0).unwrap());
    assert_ne!(first.client, second.client);
    assert!(!second.flags.contains(ExchangeIdFlags::CONFIRMED_R));
    let connection = fixture.new_connection();
    let stale = fixture.create_session(&session_args(first.client, first.seq), connection);
    assert_eq!(stale, Err(Status::STALE_CLIENTID));
    fixture.confirm(&second, sys(&user(0))).unwrap();
    let again = fixture.exchange_id("a", 1, 0).unwrap();
    assert_eq!(again.client, second.client);
    assert!(again.flags.contains(ExchangeIdFlags::CONFIRMED_R | ExchangeIdFlags::USE_NON_PNFS));
}

#[test]
fn other_principal_takes_client_owner_only_without_state() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    fixture.open(&peer, 1, 1, 0).unwrap();
    assert_eq!(fixture.exchange_id("a", 1, 5), Err(Status::CLID_INUSE));
    fixture.advance(LEASE_MS + 1);
    assert!(fixture.exchange_id("a", 1, 5).is_ok());
    assert_eq!(fixture.open_files(), 0);
}

#[test]
fn conflict_of_client_names_is_reported_with_both_addresses() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    fixture.open(&peer, 1, 1, 0).unwrap();
    let user = user(0);
    let holder = std::net::IpAddr::from([127, 0, 0, 1]);
    let clone = std::net::IpAddr::from([192, 0, 2, 9]);
    let refused = fixture.state.exchange_id(
        &exchange_id_args("a", 2),
        Credential { address: clone, ..sys(&user) },
        0,
    );
    assert_eq!(refused, Err(Status::CLID_INUSE));
    assert_eq!(fixture.exchange_id("a", 2, 5), Err(Status::CLID_INUSE));
    // Behind one address, each instance ends the other.
    let exchanged = fixture.exchange_id("a", 3, 0).unwrap();
    fixture.confirm(&exchanged, sys(&user)).unwrap();
    let reports: Vec<_> = fixture
        .state
        .take_effects()
        .into_iter()
        .filter_map(|effect| match effect {
            StateEffect::NameConflict { owner, holder, refused, has_ended } => {
                Some((owner.to_vec(), holder, refused, has_ended))
            }
            _ => None,
        })
        .collect();
    let report = |refused, has_ended| (b"a".to_vec(), Some(holder), refused, has_ended);
    assert_eq!(reports, [report(clone, false), report(holder, false), report(holder, true)]);
    assert_eq!(fixture.state.totals().name_conflicts, 3);
}

#[test]
fn restarted_client_loses_state_when_new_record_is_confirmed() {
    let (mut fixture, [mut old]) = Fixture::with_peers(["a"]);
    fixture.open(&old, 1, 1, 0).unwrap();
    let exchanged = fixture.exchange_id("a", 2, 0).unwrap();
    assert_ne!(exchanged.client, old.id);
    assert!(fixture.renew_lease(&mut old).is_ok());
    fixture.confirm(&exchanged, sys(&user(0))).unwrap();
    assert_eq!(fixture.renew_lease(&mut old), Err(Status::BADSESSION));
    assert_eq!(fixture.open_files(), 0);
}

#[test]
fn exchange_id_update_requires_confirmed_record() {
    let mut fixture = Fixture::new();
    assert_eq!(update_client(&mut fixture, "a", 1, 0), Err(Status::NOENT));
    fixture.exchange_id("a", 1, 0).unwrap();
    assert_eq!(update_client(&mut fixture, "a", 1, 0), Err(Status::NOENT));
    let peer = fixture.peer("a");
    assert_eq!(update_client(&mut fixture, "a", 1, 0).unwrap().client, peer.id);
    assert_eq!(update_client(&mut fixture, "a", 2, 0), Err(Status::NOT_SAME));
    assert_eq!(update_client(&mut fixture, "a", 1, 5), Err(Status::PERM));
}

#[test]
fn exchange_id_refuses_unknown_flags_and_operations() {
    let mut fixture = Fixture::new();
    let args = ExchangeIdArgs { flags: ExchangeIdFlags(0x10), ..exchange_id_args("a", 1) };
    assert_eq!(fixture.state.exchange_id(&args, sys(&user(0)), 0), Err(Status::INVAL));
    let ops = StateProtectOps { must_enforce: Bitmap::EMPTY, must_allow: Bitmap::of(&[4, 9]) };
    let args = ExchangeIdArgs {
        state_protect: StateProtect::MachineCred(ops),
        ..exchange_id_args("a", 1)
    };
    assert_eq!(fixture.state.exchange_id(&args, sys(&user(0)), 0), Err(Status::INVAL));
}

#[test]
fn machine_credential_is_required_under_state_protection() {
    let mut fixture = Fixture::new();
    let machine = gss("nfs/host@REALM");
    let alice = gss("alice@REALM");
    let by = |principal, flavour| Credential { flavour, ..sys(principal) };
    let ops = StateProtectOps { must_enforce: Bitmap::of(&[44]), must_allow: Bitmap::of(&[4, 9]) };
    let args = ExchangeIdArgs {
        state_protect: StateProtect::MachineCred(ops),
        ..exchange_id_args("a", 1)
    };
    let exchanged = fixture.state.exchange_id(&args, by(&machine, Flavour::Krb5i), 0).unwrap();
    assert_eq!(exchanged.machine.unwrap().must_allow, Bitmap::of(&[4]));
    let connection = fixture.new_connection();
    let create = session_args(exchanged.client, exchanged.seq);
    assert_eq!(
        fixture.state.create_session(&create, connection, by(&alice, Flavour::Krb5i), 0),
        Err(Status::CLID_INUSE)
    );
    assert_eq!(
        fixture.state.create_session(&create, connection, by(&machine, Flavour::Krb5), 0),
        Err(Status::WRONG_CRED)
    );
    let ok =
        fixture.state.create_session(&create, connection, by(&machine, Flavour::Krb5i), 0).unwrap();
    let client = fixture.state.client_by_id(exchanged.client).unwrap();
    assert_eq!(
        fixture.state.machine_operations(client, by(&machine, Flavour::Krb5p)),
        Bitmap::of(&[4])
    );
    assert!(fixture.state.machine_operations(client, by(&machine, Flavour::Krb5)).is_empty());
    assert!(fixture.state.machine_operations(client, by(&alice, Flavour::Krb5p)).is_empty());
    assert_eq!(
        fixture.state.destroy_session(&ok.session, connection, by(&alice, Flavour::Krb5p)),
        Err(Status::WRONG_CRED)
    );
    // §2.10.3.1.
    let other = fixture.new_connection();
    let peer = fixture.peer_of(&exchanged, ok.session, other);
    assert!(matches!(
        fixture.sequence_on(&peer, 0, SlotSeq(1), false),
        Err(Status::CONN_NOT_BOUND_TO_SESSION)
    ));
    assert_eq!(
        fixture.state.destroy_session(&ok.session, connection, by(&machine, Flavour::Krb5p)),
        Ok(())
    );
}

#[test]
fn retried_create_session_returns_same_session() {
    // §18.36.4, phase 2.
    let mut fixture = Fixture::new();
    let exchanged = fixture.exchange_id("a", 1, 0).unwrap();
    let connection = fixture.new_connection();
    let mut create =
        |seq: CreateSeq| fixture.create_session(&session_args(exchanged.client, seq), connection);
    assert_eq!(create(CreateSeq(exchanged.seq.0.wrapping_sub(1))), Err(Status::SEQ_MISORDERED));
    let first = create(exchanged.seq).unwrap();
    assert_eq!(create(exchanged.seq), Ok(first));
    assert_eq!(create(exchanged.seq.next().next()), Err(Status::SEQ_MISORDERED));
    assert_ne!(create(exchanged.seq.next()).unwrap().session, first.session);
    assert_eq!(fixture.state.totals().sessions, 2);
}

// §2.10.8.
#[test]
fn create_session_retry_is_refused_to_other_principals() {
    let (host, other, root, none) = (gss("host/a@R"), gss("host/b@R"), user(0), Principal::None);
    let others = [(&none, Flavour::None), (&root, Flavour::Sys), (&other, Flavour::Krb5p)];
    let ops = StateProtectOps { must_enforce: Bitmap::EMPTY, must_allow: Bitmap::EMPTY };
    for (state_protect, refused) in [
        (StateProtect::None, Status::CLID_INUSE),
        (StateProtect::MachineCred(ops), Status::WRONG_CRED),
    ] {
        let mut fixture = Fixture::new();
        let creator = Credential { flavour: Flavour::Krb5i, ..sys(&host) };
        let exchanged = fixture
            .state
            .exchange_id(&ExchangeIdArgs { state_protect, ..exchange_id_args("a", 1) }, creator, 0)
            .unwrap();
        let connection = fixture.new_connection();
        let create = |fixture: &mut Fixture, seq, by| {
            fixture.state.create_session(&session_args(exchanged.client, seq), connection, by, 0)
        };
        let first = create(&mut fixture, exchanged.seq, creator).unwrap();
        for (principal, flavour) in others {
            for seq in [exchanged.seq, exchanged.seq.next(), CreateSeq(77)] {
                assert_eq!(
                    create(&mut fixture, seq, Credential { flavour, ..sys(principal) }),
                    Err(refused),
                    "{principal:?}"
                );
            }
        }
        assert_eq!(create(&mut fixture, exchanged.seq, creator), Ok(first));
    }
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    let by = Credential { flavour: Flavour::None, ..sys(&none) };
    assert_eq!(
        fixture.state.create_session(&session_args(peer.id, CreateSeq(1)), peer.connection, by, 0),
        Err(Status::CLID_INUSE)
    );
}

#[test]
fn kerberos_client_is_managed_only_by_its_principal() {
    let (host, other, root) = (gss("host/a@R"), gss("host/b@R"), user(0));
    let creator = Credential { flavour: Flavour::Krb5, ..sys(&host) };
    let mut fixture = Fixture::new();
    let exchanged = fixture.state.exchange_id(&exchange_id_args("a", 1), creator, 0).unwrap();
    let connection = fixture.new_connection();
    let ok = fixture
        .state
        .create_session(&session_args(exchanged.client, exchanged.seq), connection, creator, 0)
        .unwrap();
    let bind = BindConnArgs { session: ok.session, dir: ChannelDirClient::ForeOrBoth, rdma: false };
    let unbound = fixture.new_connection();
    let mut peer = fixture.peer_of(&exchanged, ok.session, unbound);
    assert!(fixture.renew_lease(&mut peer).is_ok());
    for (principal, flavour) in [(&root, Flavour::Sys), (&other, Flavour::Krb5p)] {
        let by = Credential { flavour, ..sys(principal) };
        assert_eq!(
            fixture.state.bind_connection(&bind, peer.connection, by),
            Err(Status::WRONG_CRED)
        );
        assert_eq!(
            fixture.state.destroy_session(&ok.session, peer.connection, by),
            Err(Status::WRONG_CRED)
        );
    }
    assert!(fixture.state.bind_connection(&bind, peer.connection, creator).is_ok());
    assert_eq!(fixture.state.destroy_session(&ok.session, connection, creator), Ok(()));
    assert_eq!(fixture.state.destroy_client(exchanged.client, sys(&root)), Err(Status::WRONG_CRED));
    assert_eq!(fixture.state.destroy_client(exchanged.client, creator), Ok(()));
}

// §2.10.8.3.
#[test]
fn exchange_id_without_integrity_replaces_no_protected_client() {
    let host = gss("host/a@R");
    let by = |flavour| Credential { flavour, ..sys(&host) };
    let ops = StateProtectOps { must_enforce: Bitmap::EMPTY, must_allow: Bitmap::EMPTY };
    let protected = |boot| ExchangeIdArgs {
        state_protect: StateProtect::MachineCred(ops),
        ..exchange_id_args("a", boot)
    };
    let mut fixture = Fixture::new();
    let exchanged = fixture.state.exchange_id(&protected(1), by(Flavour::Krb5i), 0).unwrap();
    fixture.confirm(&exchanged, by(Flavour::Krb5i)).unwrap();
    for boot in [1, 2] {
        assert_eq!(
            fixture.state.exchange_id(&exchange_id_args("a", boot), by(Flavour::Krb5), 0),
            Err(Status::CLID_INUSE)
        );
    }
    assert_eq!(
        fixture.state.exchange_id(&protected(1), by(Flavour::Krb5p), 0).unwrap().client,
        exchanged.client
    );
    assert_ne!(
        fixture.state.exchange_id(&protected(2), by(Flavour::Krb5p), 0).unwrap().client,
        exchanged.client
    );
}

#[test]
fn destroy_clientid_refuses_client_with_sessions() {
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    assert_eq!(fixture.state.destroy_client(peer.id, sys(&user(0))), Err(Status::CLIENTID_BUSY));
    fixture.state.destroy_session(&peer.session, peer.connection, sys(&user(0))).unwrap();
    assert_eq!(fixture.state.destroy_client(peer.id, sys(&user(0))), Ok(()));
    assert_eq!(fixture.state.destroy_client(peer.id, sys(&user(0))), Err(Status::STALE_CLIENTID));
    assert_eq!(fixture.state.totals(), Totals::default());
}

#[test]
fn silent_client_with_state_stays_until_conflicting_request() {
    let (mut fixture, [mut idle, mut silent]) = Fixture::with_peers(["idle", "silent"]);
    fixture.open(&silent, 1, 2, 1).unwrap();
    fixture.advance(LEASE_MS + 1);
    assert_eq!(fixture.renew_lease(&mut idle), Err(Status::BADSESSION));
    assert!(fixture.renew_lease(&mut silent).is_ok());
    let other = fixture.peer("other");
    assert_eq!(fixture.open(&other, 1, 1, 0), Err(Status::SHARE_DENIED));
    fixture.advance(LEASE_MS + 1);
    let other = fixture.peer("other");
    assert!(fixture.open(&other, 1, 1, 0).is_ok());
    assert_eq!(fixture.renew_lease(&mut silent), Err(Status::BADSESSION));
    assert_eq!(fixture.open_files(), 1);
}

#[test]
fn request_in_progress_keeps_lease() {
    let (mut fixture, [mut peer]) = Fixture::with_peers(["a"]);
    let turn = fixture.begin(&peer, 1, 1, false);
    (0..5).for_each(|_| fixture.advance(LEASE_MS));
    fixture.state.finish(&turn, None, fixture.now);
    assert!(fixture.renew_lease(&mut peer).is_ok());
}

#[test]
fn silent_clients_are_evicted_for_new_clients() {
    let mut fixture = Fixture::with_limits(|limits| limits.clients_max = 2);
    let (first, mut second) = (fixture.peer("a"), fixture.peer("b"));
    fixture.open(&first, 1, 1, 0).unwrap();
    fixture.open(&second, 2, 1, 0).unwrap();
    assert_eq!(fixture.exchange_id("c", 1, 0), Err(Status::DELAY));
    fixture.advance(LEASE_MS - 10);
    fixture.renew_lease(&mut second).unwrap();
    fixture.advance(20);
    assert!(fixture.exchange_id("c", 1, 0).is_ok());
    assert!(fixture.renew_lease(&mut second).is_ok());
    assert_eq!(fixture.open_files(), 1);
}

#[test]
fn unconfirmed_clients_evict_no_confirmed_client() {
    let mut fixture = Fixture::with_limits(|limits| limits.clients_max = 20);
    let mut silent = fixture.peer("silent");
    fixture.open(&silent, 1, 1, 0).unwrap();
    fixture.advance(LEASE_MS + 1);
    let flood = |fixture: &mut Fixture, count: u32, boot: u8| {
        for number in 0..count {
            let name = format!("{number}");
            let owner = ClientOwner { verifier: Verifier([boot; 8]), id: Bytes(name.as_bytes()) };
            let args = ExchangeIdArgs { owner, ..exchange_id_args("", boot) };
            let _ = fixture.state.exchange_id(&args, sys(&user(7)), fixture.now);
        }
    };
    flood(&mut fixture, 100, 1);
    fixture.advance(limits::EVICTION_INTERVAL_MS);
    assert!(fixture.state.clients.len() <= 1 + limits::UNCONFIRMED_MIN);
    let late = fixture.exchange_id("late", 1, 0).unwrap();
    flood(&mut fixture, 10, 2);
    assert!(fixture.confirm(&late, sys(&user(0))).is_ok());
    let peers = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| {
        fixture.advance(limits::EVICTION_INTERVAL_MS);
        fixture.peer(name)
    });
    flood(&mut fixture, 100, 3);
    assert!(peers.into_iter().all(|mut peer| fixture.renew_lease(&mut peer).is_ok()));
    assert!(fixture.renew_lease(&mut silent).is_ok());
    assert_eq!(fixture.open_files(), 1);
}

#[test]
fn idle_session_counts_as_state_until_its_lease_ends() {
    // §18.35.4, case 3; §18.50.3 lists sessions beside opens and locks.
    let (mut fixture, [peer]) = Fixture::with_peers(["a"]);
    assert_eq!(fixture.exchange_id("a", 1, 5), Err(Status::CLID_INUSE));
    fixture.state.destroy_session(&peer.session, peer.connection, sys(&user(0))).unwrap();
    assert!(fixture.exchange_id("a", 1, 5).is_ok());
    fixture.peer("b");
    fixture.advance(LEASE_MS);
    assert!(fixture.exchange_id("b", 1, 5).is_ok());
}

#[test]
fn ends_of_clients_are_reported() {
    let (mut fixture, [a]) = Fixture::with_peers(["a"]);
    fixture.open(&a, 1, 3, 3).unwrap();
    let mut reports = Vec::new();
    let mut report = |fixture: &mut Fixture| {
        reports.extend(fixture.state.take_effects().into_iter().filter_map(
            |effect| match effect {
                StateEffect::ClientEnded { owner, why, .. } => Some((owner.to_vec(), why)),
                _ => None,
            },
        ));
    };
    fixture.advance(LEASE_MS);
    report(&mut fixture);
    let b = fixture.peer("b");
    fixture.open(&b, 1, 3, 3).unwrap();
    report(&mut fixture);
    let held = fixture.state.holdings(0).unwrap();
    assert_eq!(
        fixture.state.end_holdings(&held, fixture.now, crate::state::Loss::Revoked, |ended, _| {
            ClientEnd::AccessLost { ended }
        }),
        1
    );
    report(&mut fixture);
    let expected = [
        (b"a".to_vec(), ClientEnd::Expired { silent_ms: LEASE_MS }),
        (b"b".to_vec(), ClientEnd::AccessLost { ended: 1 }),
    ];
    assert_eq!(reports, expected);
}
