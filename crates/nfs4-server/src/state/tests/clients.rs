//! EXCHANGE_ID, CREATE_SESSION, DESTROY_CLIENTID (RFC 8881, sections 18.35, 18.36, 18.50), leases
//! and courtesy.

use vouch_nfs4::op::{BindConnArgs, ChannelDirClient, ExchangeIdFlags};
use vouch_nfs4::{Bitmap, CreateSeq, StateProtect, StateProtectOps};

use super::*;

fn update(world: &mut World, name: &'static str, life: u8, uid: u32) -> Result<Introduced, Status> {
    let args = ExchangeIdArgs { flags: ExchangeIdFlags::UPD_CONFIRMED_REC_A, ..introduction(name, life) };
    world.state.exchange_id(&args, sys(&user(uid)), world.now)
}

#[test]
fn an_unconfirmed_client_is_replaced() {
    // RFC 8881, section 18.35.4, cases 1 and 4.
    let mut world = World::new();
    let first = world.introduce("a", 1, 0).unwrap();
    let second = world.introduce("a", 1, 0).unwrap();
    assert_ne!(first.client, second.client);
    assert!(!second.flags.contains(ExchangeIdFlags::CONFIRMED_R));
    let connection = world.connection();
    let stale = world.state.create_session(&session_args(first.client, first.seq), connection, sys(&user(0)), 0);
    assert_eq!(stale, Err(Status::STALE_CLIENTID));
}

#[test]
fn the_same_client_again_is_told_so() {
    // Case 2.
    let mut world = World::new();
    let peer = world.peer("a");
    let again = world.introduce("a", 1, 0).unwrap();
    assert_eq!(again.client, peer.id);
    assert!(again.flags.contains(ExchangeIdFlags::CONFIRMED_R | ExchangeIdFlags::USE_NON_PNFS));
}

#[test]
fn another_principal_gets_a_name_only_when_nothing_hangs_on_it() {
    // Case 3.
    let mut world = World::new();
    let peer = world.peer("a");
    world.open(&peer, 1, 1, 0).unwrap();
    assert_eq!(world.introduce("a", 1, 5), Err(Status::CLID_INUSE));
    world.pass(LEASE_MS + 1);
    assert!(world.introduce("a", 1, 5).is_ok());
    assert_eq!(world.open_files(), 0);
}

#[test]
fn a_restarted_client_loses_its_state_when_the_new_life_is_confirmed() {
    // Case 5.
    let mut world = World::new();
    let mut old = world.peer("a");
    world.open(&old, 1, 1, 0).unwrap();
    let introduced = world.introduce("a", 2, 0).unwrap();
    assert_ne!(introduced.client, old.id);
    assert!(world.beat(&mut old).is_ok());
    let connection = world.connection();
    world.state.create_session(&session_args(introduced.client, introduced.seq), connection, sys(&user(0)), 0).unwrap();
    assert_eq!(world.beat(&mut old), Err(Status::BADSESSION));
    assert_eq!(world.open_files(), 0);
}

#[test]
fn updates_need_the_confirmed_record_itself() {
    // Cases 6 to 9.
    let mut world = World::new();
    assert_eq!(update(&mut world, "a", 1, 0), Err(Status::NOENT));
    world.introduce("a", 1, 0).unwrap();
    assert_eq!(update(&mut world, "a", 1, 0), Err(Status::NOENT));
    let peer = world.peer("a");
    assert_eq!(update(&mut world, "a", 1, 0).unwrap().client, peer.id);
    assert_eq!(update(&mut world, "a", 2, 0), Err(Status::NOT_SAME));
    assert_eq!(update(&mut world, "a", 1, 5), Err(Status::PERM));
}

#[test]
fn flags_and_protections_that_do_not_exist_are_refused() {
    // Section 18.35.3.
    let mut world = World::new();
    let args = ExchangeIdArgs { flags: ExchangeIdFlags(0x10), ..introduction("a", 1) };
    assert_eq!(world.state.exchange_id(&args, sys(&user(0)), 0), Err(Status::INVAL));
    let ops = StateProtectOps { must_enforce: Bitmap::EMPTY, must_allow: Bitmap::of(&[4, 9]) };
    let args = ExchangeIdArgs { state_protect: StateProtect::MachineCred(ops), ..introduction("a", 1) };
    assert_eq!(world.state.exchange_id(&args, sys(&user(0)), 0), Err(Status::INVAL));
}

#[test]
fn under_machine_protection_only_the_machine_may_manage() {
    // Section 2.10.8.3.
    let mut world = World::new();
    let machine = Principal::Gss { name: "nfs/host@REALM".into() };
    let alice = Principal::Gss { name: "alice@REALM".into() };
    let by = |principal, flavour| Credential { flavour, ..sys(principal) };
    let ops = StateProtectOps { must_enforce: Bitmap::of(&[44]), must_allow: Bitmap::of(&[4, 9]) };
    let args = ExchangeIdArgs { state_protect: StateProtect::MachineCred(ops), ..introduction("a", 1) };
    let introduced = world.state.exchange_id(&args, by(&machine, Flavour::Krb5i), 0).unwrap();
    // CLOSE is allowed, GETATTR is not ours to give.
    assert_eq!(introduced.machine.unwrap().must_allow, Bitmap::of(&[4]));
    let connection = world.connection();
    let create = session_args(introduced.client, introduced.seq);
    assert_eq!(world.state.create_session(&create, connection, by(&alice, Flavour::Krb5i), 0), Err(Status::CLID_INUSE));
    assert_eq!(world.state.create_session(&create, connection, by(&machine, Flavour::Krb5), 0), Err(Status::WRONG_CRED));
    let ok = world.state.create_session(&create, connection, by(&machine, Flavour::Krb5i), 0).unwrap();
    let client = world.state.client_by_id(introduced.client).unwrap();
    assert_eq!(world.state.machine_operations(client, by(&machine, Flavour::Krb5p)), Bitmap::of(&[4]));
    assert!(world.state.machine_operations(client, by(&machine, Flavour::Krb5)).is_empty());
    assert!(world.state.machine_operations(client, by(&alice, Flavour::Krb5p)).is_empty());
    assert_eq!(world.state.destroy_session(&ok.session, connection, by(&alice, Flavour::Krb5p)), Err(Status::WRONG_CRED));
    // Section 2.10.3.1: a connection is not bound by using it.
    let peer = Peer { client, id: introduced.client, session: ok.session, connection: world.connection(), seq: SlotSeq(0) };
    assert!(matches!(world.sequence_on(&peer, 0, SlotSeq(1), false), Err(Status::CONN_NOT_BOUND_TO_SESSION)));
    assert_eq!(world.state.destroy_session(&ok.session, connection, by(&machine, Flavour::Krb5p)), Ok(()));
}

#[test]
fn a_retried_create_session_makes_one_session() {
    // Section 18.36.4, phase 2.
    let mut world = World::new();
    let introduced = world.introduce("a", 1, 0).unwrap();
    let connection = world.connection();
    let mut create = |seq: CreateSeq| world.state.create_session(&session_args(introduced.client, seq), connection, sys(&user(0)), 0);
    assert_eq!(create(CreateSeq(introduced.seq.0.wrapping_sub(1))), Err(Status::SEQ_MISORDERED));
    let first = create(introduced.seq).unwrap();
    assert_eq!(create(introduced.seq), Ok(first));
    assert_eq!(create(introduced.seq.next().next()), Err(Status::SEQ_MISORDERED));
    assert_ne!(create(introduced.seq.next()).unwrap().session, first.session);
    assert_eq!(world.state.totals().sessions, 2);
}

// Section 2.10.8: what a client is told by a retry is a session's name, and who knows it can use
// the session.
#[test]
fn nobody_else_is_told_of_a_session_by_a_retry() {
    let name = |name: &str| Principal::Gss { name: name.into() };
    let (host, other, root, nobody) = (name("host/a@R"), name("host/b@R"), user(0), Principal::None);
    let strangers = [(&nobody, Flavour::None), (&root, Flavour::Sys), (&other, Flavour::Krb5p)];
    let ops = StateProtectOps { must_enforce: Bitmap::EMPTY, must_allow: Bitmap::EMPTY };
    for (state_protect, refused) in [(StateProtect::None, Status::CLID_INUSE), (StateProtect::MachineCred(ops), Status::WRONG_CRED)] {
        let mut world = World::new();
        let maker = Credential { flavour: Flavour::Krb5i, ..sys(&host) };
        let introduced = world.state.exchange_id(&ExchangeIdArgs { state_protect, ..introduction("a", 1) }, maker, 0).unwrap();
        let connection = world.connection();
        let create = |world: &mut World, seq, by| world.state.create_session(&session_args(introduced.client, seq), connection, by, 0);
        let first = create(&mut world, introduced.seq, maker).unwrap();
        for (principal, flavour) in strangers {
            for seq in [introduced.seq, introduced.seq.next(), CreateSeq(77)] {
                assert_eq!(create(&mut world, seq, Credential { flavour, ..sys(principal) }), Err(refused), "{principal:?}");
            }
        }
        assert_eq!(create(&mut world, introduced.seq, maker), Ok(first));
    }
    // Under AUTH_SYS nothing is proven; but who does not even say who he is gets nothing.
    let mut world = World::new();
    let peer = world.peer("a");
    let by = Credential { flavour: Flavour::None, ..sys(&nobody) };
    assert_eq!(world.state.create_session(&session_args(peer.id, CreateSeq(1)), peer.connection, by, 0), Err(Status::CLID_INUSE));
}

// A session's id can be read on the wire unless calls are sealed. Under krb5 and krb5i that must
// not be enough to end it.
#[test]
fn a_client_that_was_proven_is_managed_by_nobody_else() {
    let name = |name: &str| Principal::Gss { name: name.into() };
    let (host, other, root) = (name("host/a@R"), name("host/b@R"), user(0));
    let maker = Credential { flavour: Flavour::Krb5, ..sys(&host) };
    let mut world = World::new();
    let introduced = world.state.exchange_id(&introduction("a", 1), maker, 0).unwrap();
    let connection = world.connection();
    let ok = world.state.create_session(&session_args(introduced.client, introduced.seq), connection, maker, 0).unwrap();
    let client = world.state.client_by_id(introduced.client).unwrap();
    let bind = BindConnArgs { session: ok.session, dir: ChannelDirClient::ForeOrBoth, rdma: false };
    // Its users come under whatever flavour, also over connections of their own.
    let mut peer = Peer { client, id: introduced.client, session: ok.session, connection: world.connection(), seq: SlotSeq(0) };
    assert!(world.beat(&mut peer).is_ok());
    for (principal, flavour) in [(&root, Flavour::Sys), (&other, Flavour::Krb5p)] {
        let by = Credential { flavour, ..sys(principal) };
        assert_eq!(world.state.bind_connection(&bind, peer.connection, by), Err(Status::WRONG_CRED));
        assert_eq!(world.state.destroy_session(&ok.session, peer.connection, by), Err(Status::WRONG_CRED));
    }
    assert!(world.state.bind_connection(&bind, peer.connection, maker).is_ok());
    assert_eq!(world.state.destroy_session(&ok.session, connection, maker), Ok(()));
    assert_eq!(world.state.destroy_client(introduced.client, sys(&root)), Err(Status::WRONG_CRED));
    assert_eq!(world.state.destroy_client(introduced.client, maker), Ok(()));
}

// Section 2.10.8.3: EXCHANGE_ID is the machine's alone, by calls that can't be altered on their
// way.
#[test]
fn what_could_have_been_altered_replaces_no_client_under_state_protection() {
    let host = Principal::Gss { name: "host/a@R".into() };
    let by = |flavour| Credential { flavour, ..sys(&host) };
    let ops = StateProtectOps { must_enforce: Bitmap::EMPTY, must_allow: Bitmap::EMPTY };
    let protected = |life| ExchangeIdArgs { state_protect: StateProtect::MachineCred(ops), ..introduction("a", life) };
    let mut world = World::new();
    let introduced = world.state.exchange_id(&protected(1), by(Flavour::Krb5i), 0).unwrap();
    let connection = world.connection();
    world.state.create_session(&session_args(introduced.client, introduced.seq), connection, by(Flavour::Krb5i), 0).unwrap();
    for life in [1, 2] {
        assert_eq!(world.state.exchange_id(&introduction("a", life), by(Flavour::Krb5), 0), Err(Status::CLID_INUSE));
    }
    assert_eq!(world.state.exchange_id(&protected(1), by(Flavour::Krb5p), 0).unwrap().client, introduced.client);
    assert_ne!(world.state.exchange_id(&protected(2), by(Flavour::Krb5p), 0).unwrap().client, introduced.client);
}

#[test]
fn a_client_with_sessions_is_not_destroyed() {
    // Section 18.50.3.
    let mut world = World::new();
    let peer = world.peer("a");
    assert_eq!(world.state.destroy_client(peer.id, sys(&user(0))), Err(Status::CLIENTID_BUSY));
    world.state.destroy_session(&peer.session, peer.connection, sys(&user(0))).unwrap();
    assert_eq!(world.state.destroy_client(peer.id, sys(&user(0))), Ok(()));
    assert_eq!(world.state.destroy_client(peer.id, sys(&user(0))), Err(Status::STALE_CLIENTID));
    assert_eq!(world.state.totals(), Totals::default());
}

#[test]
fn a_silent_client_without_state_goes_and_one_with_state_stays_until_it_is_in_the_way() {
    // Sections 8.3 and 8.4.
    let mut world = World::new();
    let (mut idle, mut silent) = (world.peer("idle"), world.peer("silent"));
    world.open(&silent, 1, 2, 1).unwrap();
    world.pass(LEASE_MS + 1);
    assert_eq!(world.beat(&mut idle), Err(Status::BADSESSION));
    // It comes back in time.
    assert!(world.beat(&mut silent).is_ok());
    let other = world.peer("other");
    assert_eq!(world.open(&other, 1, 1, 0), Err(Status::SHARE_DENIED));
    world.pass(LEASE_MS + 1);
    let other = world.peer("other");
    assert!(world.open(&other, 1, 1, 0).is_ok());
    assert_eq!(world.beat(&mut silent), Err(Status::BADSESSION));
    assert_eq!(world.open_files(), 1);
}

#[test]
fn a_request_under_way_keeps_the_lease() {
    // Section 8.3.
    let mut world = World::new();
    let mut peer = world.peer("a");
    let Ok(Sequenced::New(turn)) = world.sequence_on(&peer, 1, SlotSeq(1), false) else { panic!("it is new") };
    (0..5).for_each(|_| world.pass(LEASE_MS));
    world.state.finish(&turn, None, world.now);
    assert!(world.beat(&mut peer).is_ok());
}

#[test]
fn silent_clients_make_room_for_new_ones() {
    let mut config = config();
    config.limits.clients_max = 2;
    let mut world = World::with(config, &[]);
    let (first, mut second) = (world.peer("a"), world.peer("b"));
    world.open(&first, 1, 1, 0).unwrap();
    world.open(&second, 2, 1, 0).unwrap();
    assert_eq!(world.introduce("c", 1, 0), Err(Status::DELAY));
    world.pass(LEASE_MS - 10);
    world.beat(&mut second).unwrap();
    world.pass(20);
    assert!(world.introduce("c", 1, 0).is_ok());
    assert!(world.beat(&mut second).is_ok());
    assert_eq!(world.open_files(), 1);
}

#[test]
fn unconfirmed_clients_evict_no_confirmed_client() {
    let mut config = config();
    config.limits.clients_max = 20;
    let mut world = World::with(config, &[]);
    let mut silent = world.peer("silent");
    world.open(&silent, 1, 1, 0).unwrap();
    world.pass(LEASE_MS + 1);
    let flood = |world: &mut World, count: u32, life: u8| {
        for number in 0..count {
            let name = format!("{number}");
            let owner = ClientOwner { verifier: Verifier([life; 8]), id: Bytes(name.as_bytes()) };
            let args = ExchangeIdArgs { owner, ..introduction("", life) };
            // Beyond its eviction scans a source is told to come later.
            let _ = world.state.exchange_id(&args, sys(&user(7)), world.now);
        }
    };
    flood(&mut world, 100, 1);
    world.pass(limits::EVICTION_INTERVAL_MS);
    assert!(world.state.clients.len() <= 1 + limits::UNCONFIRMED_MIN);
    // Whoever goes on soon gets through.
    let late = world.introduce("late", 1, 0).unwrap();
    flood(&mut world, 10, 2);
    let connection = world.connection();
    assert!(world.state.create_session(&session_args(late.client, late.seq), connection, sys(&user(0)), world.now).is_ok());
    // And so does a client in the middle of it, as it was confirmed.
    let peers = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| {
        world.pass(limits::EVICTION_INTERVAL_MS);
        world.peer(name)
    });
    flood(&mut world, 100, 3);
    assert!(peers.into_iter().all(|mut peer| world.beat(&mut peer).is_ok()));
    assert!(world.beat(&mut silent).is_ok());
    assert_eq!(world.open_files(), 1);
}
