use super::v40::{
    confirmed_open, finish_owner_call, kerberos_client, open_by, try_open_by, v40_client,
    with_kerberos_client, with_v40_client,
};
use super::*;
use crate::state::limits;

fn check_caller(
    fixture: &mut Fixture,
    stateid: &Stateid,
    caller: Option<&str>,
) -> Result<(), Status> {
    fixture.state.authorize_v40_stateid(stateid, caller.map(Arc::from).as_ref(), fixture.now)
}

fn silent_ms(fixture: &Fixture) -> u64 {
    fixture.state.status(fixture.now).clients[0].silent_ms
}

#[test]
fn kerberos_open_is_used_only_by_user_and_machine() {
    let (mut fixture, peer) = with_kerberos_client();
    let stateid = open_by(&mut fixture, &peer, "alice owner", Some("alice@R"));
    fixture.advance(1000);
    for stranger in [Some("mallory@R"), Some("alice@S"), None] {
        assert_eq!(check_caller(&mut fixture, &stateid, stranger), Err(Status::ACCESS));
    }
    assert!(fixture.io(None, &stateid, 1, Io::Read).is_ok());
    assert_eq!(silent_ms(&fixture), 1000);
    for caller in ["alice@R", "host/a@R"] {
        assert_eq!(
            (check_caller(&mut fixture, &stateid, Some(caller)), silent_ms(&fixture)),
            (Ok(()), 0)
        );
        fixture.advance(1000);
    }
    let auth_sys_stateid = open_by(&mut fixture, &peer, "auth_sys owner", None);
    assert_eq!(
        [None, Some("mallory@R")].map(|caller| check_caller(
            &mut fixture,
            &auth_sys_stateid,
            caller
        )),
        [Ok(()); 2]
    );
}

#[test]
fn owner_names_of_different_principals_never_collide() {
    let names = [None, Some("alice@R"), Some("mallory@R")]
        .map(|caller| internal_owner_name(b"l", caller.map(Arc::from).as_ref()));
    assert!(names[0] != names[1] && names[0] != names[2] && names[1] != names[2]);
    assert_ne!(internal_owner_name(&names[1], None), names[1]);
    assert_ne!(internal_owner_name(&names[1][1..], Some(&"mallory@R".into())), names[1]);
    let (fixture, peer) = with_kerberos_client();
    for known in names {
        assert_eq!(&*fixture.state.sent_owner_name(peer.client, &known.into()), b"l");
    }
}

#[test]
fn client_id_of_other_user_renews_no_lease() {
    let (mut fixture, peer) = with_kerberos_client();
    open_by(&mut fixture, &peer, "alice owner", Some("alice@R"));
    let id = ClientId(fixture.state.status(fixture.now).clients[0].id);
    fixture.advance(1000);
    for (caller, silent) in [(Some("mallory@R"), 1000), (None, 1000), (Some("alice@R"), 0)] {
        assert_eq!(
            fixture.state.v40_client(id, caller.map(Arc::from).as_ref(), fixture.now),
            Ok(peer.client)
        );
        assert_eq!(silent_ms(&fixture), silent, "{caller:?}");
    }
}

#[test]
fn kerberos_users_of_auth_sys_client_are_kept_apart() {
    let (mut fixture, peer) = with_v40_client();
    let stateid = open_by(&mut fixture, &peer, "alice owner", Some("alice@R"));
    assert_eq!(check_caller(&mut fixture, &stateid, Some("mallory@R")), Err(Status::ACCESS));
    assert_eq!(
        [Some("alice@R"), None].map(|caller| check_caller(&mut fixture, &stateid, caller)),
        [Ok(()); 2]
    );
    let (mut fixture, peer) = with_v40_client();
    let stateid = confirmed_open(&mut fixture, &peer);
    assert_eq!(
        [None, Some("mallory@R")].map(|caller| check_caller(&mut fixture, &stateid, caller)),
        [Ok(()); 2]
    );
}

fn open_until_refused(fixture: &mut Fixture, peer: &Peer, principal: Option<&str>) -> usize {
    (0..100)
        .take_while(|number| {
            try_open_by(fixture, peer, &format!("{principal:?}{number}"), principal).is_ok()
        })
        .count()
}

#[test]
fn other_principal_gets_half_of_open_quota() {
    let mut config = config();
    config.limits.opens_per_client_max = 20;
    let opens = |principals: &[Option<&str>]| {
        let mut fixture = Fixture::with_config(config.clone(), &[]);
        let peer = kerberos_client(&mut fixture);
        principals
            .iter()
            .map(|principal| open_until_refused(&mut fixture, &peer, *principal))
            .collect::<Vec<_>>()
    };
    let (mallory, alice, machine) = (Some("mallory@R"), Some("alice@R"), Some("host/a@R"));
    assert_eq!(opens(&[mallory, alice]), [10, 10]);
    assert_eq!(opens(&[None, alice]), [10, 10]);
    assert_eq!(opens(&[machine]), [20]);
    let mut fixture = Fixture::with_config(config.clone(), &[]);
    let peer = v40_client(&mut fixture, "auth_sys");
    assert_eq!(open_until_refused(&mut fixture, &peer, None), 20);
}

#[test]
fn idle_owners_of_other_principal_are_evicted() {
    let (mut fixture, peer) = with_kerberos_client();
    let open = open_by(&mut fixture, &peer, "alice owner", Some("alice@R"));
    for number in 1..limits::OWNERS_PER_CLIENT_MAX as u32 {
        let name = internal_owner_name(&number.to_be_bytes(), Some(&"mallory@R".into()));
        let turn =
            fixture.state.owner_turn(peer.client, &name, vouch_nfs4::OwnerSeq(1), false).unwrap();
        finish_owner_call(&mut fixture, turn, Status::OK, 18);
    }
    assert!(try_open_by(&mut fixture, &peer, "second alice owner", Some("alice@R")).is_ok());
    let by = LockBy::New { open: &open, owner: b"l", seq: vouch_nfs4::OwnerSeq(1) };
    let range = Range::new(0, 1).unwrap();
    let call = LockCall {
        client: None,
        file: file(1),
        by,
        range,
        mode: Mode::Shared,
        wait: false,
        reclaim: false,
    };
    assert!(fixture.state.lock(&call, fixture.now).is_ok());
}

#[test]
fn lock_owner_without_ranges_moves_to_new_open() {
    let (mut fixture, peer) = with_kerberos_client();
    let opens = ["one", "other"].map(|name| open_by(&mut fixture, &peer, name, Some("alice@R")));
    let range = Range::new(0, 10).unwrap();
    let lock = |fixture: &mut Fixture, open: &Stateid| {
        let by = LockBy::New { open, owner: b"l", seq: vouch_nfs4::OwnerSeq(1) };
        let call = LockCall {
            client: None,
            file: file(1),
            by,
            range,
            mode: Mode::Shared,
            wait: false,
            reclaim: false,
        };
        fixture.state.lock(&call, fixture.now).unwrap()
    };
    let first = lock(&mut fixture, &opens[0]);
    fixture.state.unlock(None, &first, &file(1), range, fixture.now).unwrap();
    lock(&mut fixture, &opens[1]);
    assert_eq!(fixture.close(None, &opens[1], 1), Err(Status::LOCKS_HELD));
    assert!(fixture.close(None, &opens[0], 1).is_ok());
}

#[test]
fn silent_clients_are_evicted_for_kerberos_opens() {
    let mut fixture = Fixture::with_limits(|limits| limits.opens_max = 20);
    let silent = v40_client(&mut fixture, "silent");
    let taken = (0..100)
        .take_while(|number| try_open_by(&mut fixture, &silent, &format!("{number}"), None).is_ok())
        .count();
    assert!(taken > 10);
    fixture.advance(LEASE_MS + 1);
    let peer = kerberos_client(&mut fixture);
    assert!(open_until_refused(&mut fixture, &peer, Some("alice@R")) > 10);
}
