//! RFC 7530.

use vouch_nfs4::{OwnerSeq, StateSeq};

use super::*;

fn callback(port: u16) -> Callback40 {
    Callback40 {
        address: Some(([192, 0, 2, 1], port).into()),
        netid: (*b"tcp").into(),
        universal_address: (*b"192.0.2.1.0.9").into(),
        program: 0x4000_0000,
        ident: 3,
    }
}

fn setclientid(
    fixture: &mut Fixture,
    name: &'static str,
    boot: u8,
    uid: u32,
) -> Result<(ClientId, Verifier), SetClientError> {
    let owner = ClientOwner { verifier: Verifier([boot; 8]), id: Bytes(name.as_bytes()) };
    fixture.state.set_client_id(&owner, callback(9), sys(&user(uid)), fixture.now)
}

pub(super) fn v40_client(fixture: &mut Fixture, name: &'static str) -> Peer {
    v40_client_from(fixture, 1, name)
}

pub(super) fn with_v40_client() -> (Fixture, Peer) {
    let mut fixture = Fixture::new();
    let peer = v40_client(&mut fixture, "a");
    (fixture, peer)
}

pub(super) fn with_kerberos_client() -> (Fixture, Peer) {
    let mut fixture = Fixture::new();
    let peer = kerberos_client(&mut fixture);
    (fixture, peer)
}

fn v40_client_from(fixture: &mut Fixture, last: u8, name: &'static str) -> Peer {
    let owner = ClientOwner { verifier: Verifier([1; 8]), id: Bytes(name.as_bytes()) };
    let user = user(0);
    let credential = Credential { address: [127, 0, 0, last].into(), ..sys(&user) };
    let (id, confirm) =
        fixture.state.set_client_id(&owner, callback(9), credential, fixture.now).unwrap();
    fixture.state.confirm_client(id, confirm, credential, fixture.now).unwrap();
    let client = fixture.state.v40_client(id, None, fixture.now).unwrap();
    Peer { client, id, session: SessionId([0; 16]), connection: ConnectionId(0), seq: SlotSeq(0) }
}

fn begin_owner_call(fixture: &mut Fixture, peer: &Peer, seq: u32) -> Result<OwnerTurn, Status> {
    fixture.state.owner_turn(peer.client, b"owner", OwnerSeq(seq), false)
}

pub(super) fn finish_owner_call(fixture: &mut Fixture, turn: OwnerTurn, status: Status, op: u32) {
    let OwnerTurn::New(token) = turn else { panic!("not a new call: {turn:?}") };
    fixture.state.owner_done(&token, status, OwnerReply { op, bytes: vec![op as u8], file: None });
}

pub(super) fn confirmed_open(fixture: &mut Fixture, peer: &Peer) -> Stateid {
    let first = begin_owner_call(fixture, peer, 1).unwrap();
    let opened =
        fixture.open_as(peer, "owner", 1, share(3, 0), Claim::New, Want::Unstated).unwrap();
    assert!(opened.confirm);
    finish_owner_call(fixture, first, Status::OK, 18);
    assert_eq!(fixture.io(None, &opened.stateid, 1, Io::Read), Err(Status::BAD_STATEID));
    let second = fixture.state.owner_turn_by_state(&opened.stateid, OwnerSeq(2), 0).unwrap();
    let stateid = fixture.state.confirm_open(&opened.stateid, &file(1), 0).unwrap();
    finish_owner_call(fixture, second, Status::OK, 20);
    assert_eq!(stateid.seq, StateSeq(2));
    stateid
}

pub(super) fn open_next(fixture: &mut Fixture, peer: &Peer, seq: u32) {
    let next = begin_owner_call(fixture, peer, seq).unwrap();
    let opened =
        fixture.open_as(peer, "owner", 2, share(1, 0), Claim::New, Want::Unstated).unwrap();
    assert!(!opened.confirm);
    finish_owner_call(fixture, next, Status::OK, 18);
}

// §16.33.5.
#[test]
fn restart_from_other_host_keeps_state_of_live_client() {
    let mut fixture = Fixture::new();
    let victim = v40_client(&mut fixture, "a");
    let root = user(0);
    let elsewhere = Credential { address: [127, 0, 0, 9].into(), ..sys(&root) };
    let owner = ClientOwner { verifier: Verifier([2; 8]), id: Bytes(b"a") };
    let (id, confirm) =
        fixture.state.set_client_id(&owner, callback(9), elsewhere, fixture.now).unwrap();
    let stateid = confirmed_open(&mut fixture, &victim);
    assert_eq!(
        fixture.state.confirm_client(id, confirm, elsewhere, fixture.now),
        Err(Status::CLID_INUSE)
    );
    let again = fixture.state.set_client_id(&owner, callback(9), elsewhere, fixture.now);
    assert_eq!(again, Err(SetClientError::InUse(callback(9))));
    assert!(fixture.io(&victim, &stateid, 1, Io::Read).is_ok());
    let (id, confirm) = setclientid(&mut fixture, "a", 2, 0).unwrap();
    assert_eq!(fixture.state.confirm_client(id, confirm, sys(&root), fixture.now), Ok(()));
}

#[test]
fn setclientid_confirm_requires_the_given_verifier() {
    let mut fixture = Fixture::new();
    let (id, confirm) = setclientid(&mut fixture, "a", 1, 0).unwrap();
    assert_eq!(fixture.state.v40_client(id, None, 0), Err(Status::STALE_CLIENTID));
    assert_eq!(
        fixture.state.confirm_client(id, Verifier([0; 8]), sys(&user(0)), 0),
        Err(Status::STALE_CLIENTID)
    );
    assert_eq!(
        fixture.state.confirm_client(id, confirm, sys(&user(5)), 0),
        Err(Status::CLID_INUSE)
    );
    let (next, confirm_next) = setclientid(&mut fixture, "a", 1, 0).unwrap();
    assert_ne!(next, id);
    assert_eq!(
        fixture.state.confirm_client(id, confirm, sys(&user(0)), 0),
        Err(Status::STALE_CLIENTID)
    );
    for _ in 0..2 {
        assert_eq!(fixture.state.confirm_client(next, confirm_next, sys(&user(0)), 0), Ok(()));
    }
    let (same, change) = setclientid(&mut fixture, "a", 1, 0).unwrap();
    assert_eq!(same, next);
    assert_eq!(fixture.state.confirm_client(same, change, sys(&user(0)), 0), Ok(()));
    assert_eq!(fixture.state.renew(next, None, 0), Ok(()));
}

#[test]
fn delayed_renew_does_not_shorten_lease_and_restart_ends_state() {
    let (mut fixture, peer) = with_v40_client();
    fixture.advance(50_000);
    fixture.state.renew(peer.id, None, 50_000).unwrap();
    fixture.state.renew(peer.id, None, 10_000).unwrap();
    assert_eq!(fixture.state.status(50_000).clients[0].silent_ms, 0);
    confirmed_open(&mut fixture, &peer);
    assert!(
        matches!(setclientid(&mut fixture, "a", 1, 5), Err(SetClientError::InUse(at)) if at == callback(9))
    );
    let (id, confirm) = setclientid(&mut fixture, "a", 2, 0).unwrap();
    assert_eq!(fixture.state.totals().opens, 1);
    fixture.state.confirm_client(id, confirm, sys(&user(0)), 0).unwrap();
    assert_eq!((fixture.state.totals().opens, fixture.open_files()), (0, 0));
}

#[test]
fn last_reply_of_owner_is_replayed() {
    let (mut fixture, peer) = with_v40_client();
    let stateid = confirmed_open(&mut fixture, &peer);
    assert_eq!(
        begin_owner_call(&mut fixture, &peer, 2),
        Ok(OwnerTurn::Replay(OwnerReply { op: 20, bytes: vec![20], file: None }))
    );
    assert_eq!(begin_owner_call(&mut fixture, &peer, 1), Err(Status::BAD_SEQID));
    assert_eq!(begin_owner_call(&mut fixture, &peer, 4), Err(Status::BAD_SEQID));
    let third = begin_owner_call(&mut fixture, &peer, 3).unwrap();
    assert_eq!(begin_owner_call(&mut fixture, &peer, 3), Err(Status::DELAY));
    finish_owner_call(&mut fixture, third, Status::BAD_STATEID, 18);
    let third = fixture.state.owner_turn_by_state(&stateid, OwnerSeq(3), 0).unwrap();
    let closed = fixture.close(None, &stateid, 1).unwrap();
    assert_eq!(closed.seq, StateSeq(3));
    finish_owner_call(&mut fixture, third, Status::OK, 4);
    assert!(matches!(
        fixture.state.owner_turn_by_state(&stateid, OwnerSeq(3), 0),
        Ok(OwnerTurn::Replay(OwnerReply { op: 4, .. }))
    ));
    assert_eq!(fixture.io(None, &closed, 1, Io::Read), Err(Status::BAD_STATEID));
    let fourth = begin_owner_call(&mut fixture, &peer, 4).unwrap();
    finish_owner_call(&mut fixture, fourth, Status::NOENT, 18);
    assert_eq!(
        fixture.state.owner_turn_by_state(&stateid, OwnerSeq(3), 0),
        Err(Status::BAD_STATEID)
    );
}

#[test]
fn unconfirmed_owner_may_start_again_or_repeat_seqid() {
    let (mut fixture, peer) = with_v40_client();
    let first = begin_owner_call(&mut fixture, &peer, 1).unwrap();
    fixture.open_as(&peer, "owner", 1, share(3, 0), Claim::New, Want::Unstated).unwrap();
    finish_owner_call(&mut fixture, first, Status::OK, 18);
    let again = begin_owner_call(&mut fixture, &peer, 77).unwrap();
    assert_eq!(fixture.state.totals().opens, 0);
    assert!(
        fixture
            .open_as(&peer, "owner", 1, share(1, 0), Claim::New, Want::Unstated)
            .unwrap()
            .confirm
    );
    finish_owner_call(&mut fixture, again, Status::OK, 18);
    // §16.18.5: libnfs repeats the seqid after SYMLINK and must not get the cached error.
    let (mut fixture, peer) = with_v40_client();
    let first = begin_owner_call(&mut fixture, &peer, 0).unwrap();
    finish_owner_call(&mut fixture, first, Status::SYMLINK, 18);
    let again = begin_owner_call(&mut fixture, &peer, 0).unwrap();
    assert!(matches!(again, OwnerTurn::New(_)));
    fixture.open_as(&peer, "owner", 1, share(3, 0), Claim::New, Want::Unstated).unwrap();
    finish_owner_call(&mut fixture, again, Status::OK, 18);
    assert!(matches!(begin_owner_call(&mut fixture, &peer, 0), Ok(OwnerTurn::Replay(_))));
}

#[test]
fn owner_that_reclaims_at_a_server_with_its_state_starts_over() {
    let (mut fixture, peer) = with_v40_client();
    confirmed_open(&mut fixture, &peer);
    assert_eq!(begin_owner_call(&mut fixture, &peer, 0), Err(Status::BAD_SEQID));
    let reclaim = fixture.state.owner_turn(peer.client, b"owner", OwnerSeq(0), true).unwrap();
    assert_eq!(fixture.state.totals().opens, 0);
    fixture.open_as(&peer, "owner", 1, share(1, 0), Claim::New, Want::Unstated).unwrap();
    finish_owner_call(&mut fixture, reclaim, Status::OK, 18);
    // A retry and the next reclaim keep what is reclaimed.
    assert!(matches!(
        fixture.state.owner_turn(peer.client, b"owner", OwnerSeq(0), true),
        Ok(OwnerTurn::Replay(_))
    ));
    fixture.state.owner_turn(peer.client, b"owner", OwnerSeq(1), true).unwrap();
    assert_eq!(fixture.state.totals().opens, 1);
}

#[test]
fn lock_owner_has_its_own_seqid_and_is_released() {
    let (mut fixture, peer) = with_v40_client();
    let stateid = confirmed_open(&mut fixture, &peer);
    let third = fixture.state.owner_turn_by_state(&stateid, OwnerSeq(3), 0).unwrap();
    let name = internal_owner_name(b"l", None);
    let by = LockBy::New { open: &stateid, owner: &name, seq: OwnerSeq(50) };
    let range = Range::new(0, 10).unwrap();
    let call = LockCall {
        client: None,
        file: file(1),
        by,
        range,
        mode: Mode::Exclusive,
        wait: true,
        reclaim: false,
    };
    let lock = fixture.state.lock(&call, 0).unwrap();
    finish_owner_call(&mut fixture, third, Status::OK, 12);
    assert_eq!(fixture.state.owner_turn_by_state(&lock, OwnerSeq(52), 0), Err(Status::BAD_SEQID));
    assert_eq!(fixture.state.release_lock_owner(peer.client, b"l", None), Err(Status::LOCKS_HELD));
    let next = fixture.state.owner_turn_by_state(&lock, OwnerSeq(51), 0).unwrap();
    fixture.state.unlock(None, &lock, &file(1), range, 0).unwrap();
    finish_owner_call(&mut fixture, next, Status::OK, 14);
    assert_eq!(fixture.state.release_lock_owner(peer.client, b"l", None), Ok(()));
    assert_eq!(fixture.state.owner_turn_by_state(&lock, OwnerSeq(52), 0), Err(Status::BAD_STATEID));
}

#[test]
fn expired_stateid_differs_from_unknown_stateid() {
    let (mut fixture, peer) = with_v40_client();
    let stateid = confirmed_open(&mut fixture, &peer);
    fixture.advance(LEASE_MS + 1);
    let other = fixture.peer("b");
    fixture.open(&other, 1, 1, 2).unwrap();
    assert_eq!(fixture.io(None, &stateid, 1, Io::Read), Err(Status::EXPIRED));
    assert_eq!(fixture.state.renew(peer.id, None, 0), Err(Status::EXPIRED));
    let foreign = Stateid { other: [9; 12], ..stateid };
    assert_eq!(fixture.io(None, &foreign, 1, Io::Read), Err(Status::STALE_STATEID));
    assert_eq!(fixture.state.renew(ClientId(9), None, 0), Err(Status::STALE_CLIENTID));
}

#[test]
fn delegations_require_working_callback_path() {
    let (mut fixture, peer) = with_v40_client();
    confirmed_open(&mut fixture, &peer);
    let again = |fixture: &mut Fixture| {
        fixture
            .open_as(&peer, "owner", 2, share(1, 0), Claim::New, Want::Unstated)
            .unwrap()
            .delegation
    };
    again(&mut fixture);
    assert_eq!(again(&mut fixture), Granted::None);
    let probe = fixture.callbacks().remove(0);
    assert_eq!((probe.op.clone(), probe.ident, probe.sequence), (CallbackOp::Null, 3, None));
    fixture.answer(&probe, Status::OK);
    assert!(matches!(again(&mut fixture), Granted::Read(_)));
    let other = fixture.peer("b");
    assert_eq!(fixture.open(&other, 2, 2, 0), Err(Status::DELAY));
    let recall = fixture.callbacks().remove(0);
    fixture.state.callback_done(recall.id, CallbackAnswer::Unreachable, 0);
    assert_eq!(fixture.state.renew(peer.id, None, 0), Err(Status::CB_PATH_DOWN));
    fixture.advance(LEASE_MS - 1);
    let _ = fixture.state.renew(peer.id, None, fixture.now);
    // RENEW renews the lease all the same.
    fixture.advance(1);
    assert_eq!(fixture.state.totals().delegations, 1);
    fixture.advance(LEASE_MS - 1);
    assert_eq!(fixture.state.totals().delegations, 0);
}

#[test]
fn owners_of_failed_calls_are_forgotten() {
    // §16.18.5.
    let (mut fixture, peer) = with_v40_client();
    let confirmed = confirmed_open(&mut fixture, &peer);
    for number in 0..100u32 {
        let turn = fixture
            .state
            .owner_turn(peer.client, &number.to_be_bytes(), OwnerSeq(1), false)
            .unwrap();
        finish_owner_call(&mut fixture, turn, Status::NOENT, 18);
    }
    assert_eq!(fixture.state.owners.len(), 1);
    assert!(fixture.io(None, &confirmed, 1, Io::Read).is_ok());
    let third = begin_owner_call(&mut fixture, &peer, 3).unwrap();
    finish_owner_call(&mut fixture, third, Status::NOENT, 18);
    assert!(matches!(begin_owner_call(&mut fixture, &peer, 3), Ok(OwnerTurn::Replay(_))));
}

#[test]
fn owner_quota_of_source_leaves_room_for_others() {
    let mut fixture = Fixture::with_limits(|limits| limits.owners_max = 100);
    let [a, another, b, c] = [(1, "a"), (1, "another name"), (2, "b"), (3, "c")]
        .map(|(last, name)| v40_client_from(&mut fixture, last, name));
    let begin_until_refused = |fixture: &mut Fixture, peer: &Peer| {
        let mut begin = |number: u32| {
            fixture.state.owner_turn(peer.client, &number.to_be_bytes(), OwnerSeq(1), false)
        };
        (0..1000).take_while(|&number| begin(number).is_ok()).count()
    };
    assert_eq!(
        (
            begin_until_refused(&mut fixture, &a),
            begin_until_refused(&mut fixture, &another),
            begin_until_refused(&mut fixture, &b)
        ),
        (80, 0, 16)
    );
    assert!(begin_owner_call(&mut fixture, &c, 1).is_ok());
    assert_eq!(begin_owner_call(&mut fixture, &a, 1), Err(Status::RESOURCE));
}

#[test]
fn idle_owner_scan_is_rate_limited() {
    let (mut fixture, peer) = with_v40_client();
    let stateid = confirmed_open(&mut fixture, &peer);
    let third = fixture.state.owner_turn_by_state(&stateid, OwnerSeq(3), 0).unwrap();
    fixture.close(None, &stateid, 1).unwrap();
    finish_owner_call(&mut fixture, third, Status::OK, 4);
    let fourth = begin_owner_call(&mut fixture, &peer, 4).unwrap();
    for number in 1..limits::OWNERS_PER_CLIENT_MAX as u32 {
        fixture.state.owner_turn(peer.client, &number.to_be_bytes(), OwnerSeq(1), false).unwrap();
    }
    assert_eq!(
        fixture.state.owner_turn(peer.client, b"one more", OwnerSeq(1), false),
        Err(Status::RESOURCE)
    );
    finish_owner_call(&mut fixture, fourth, Status::NOENT, 18);
    let mut refused = 0;
    while fixture.state.owner_turn(peer.client, b"one more", OwnerSeq(1), false).is_err() {
        refused += 1;
    }
    assert_eq!(refused, limits::OWNER_SCAN_INTERVAL - 1);
}

#[test]
fn callbacks_use_flavour_of_setclientid() {
    // §3.3.3; Linux denies CB_COMPOUND under AUTH_NONE.
    let mut fixture = Fixture::new();
    v40_client(&mut fixture, "a");
    let probe = fixture.callbacks().remove(0);
    assert_eq!(
        probe.credential,
        CallbackCredential::Sys { uid: 0, gid: 0, machine: Arc::from([]) }
    );
}

fn krb5p(principal: &Principal) -> Credential<'_> {
    Credential { flavour: Flavour::Krb5p, ..sys(principal) }
}

pub(super) fn kerberos_client(fixture: &mut Fixture) -> Peer {
    let owner = ClientOwner { verifier: Verifier([1; 8]), id: Bytes(b"proven") };
    let machine = gss("host/a@R");
    let (id, confirm) =
        fixture.state.set_client_id(&owner, callback(9), krb5p(&machine), fixture.now).unwrap();
    fixture.state.confirm_client(id, confirm, krb5p(&machine), fixture.now).unwrap();
    let client = fixture.state.v40_client(id, None, fixture.now).unwrap();
    Peer { client, id, session: SessionId([0; 16]), connection: ConnectionId(0), seq: SlotSeq(0) }
}

pub(super) fn open_by(
    fixture: &mut Fixture,
    peer: &Peer,
    name: &str,
    principal: Option<&str>,
) -> Stateid {
    try_open_by(fixture, peer, name, principal).unwrap()
}

pub(super) fn try_open_by(
    fixture: &mut Fixture,
    peer: &Peer,
    name: &str,
    principal: Option<&str>,
) -> Result<Stateid, Status> {
    let opener = principal.map(Arc::from);
    let call =
        OpenCall { opener: opener.as_ref(), ..open_call(peer, name.as_bytes(), 1, share(3, 0)) };
    let first = fixture.state.owner_turn(peer.client, name.as_bytes(), OwnerSeq(1), false).unwrap();
    let opened = fixture.state.open(&call, fixture.handle.clone(), share(3, 0), fixture.now);
    finish_owner_call(
        fixture,
        first,
        opened.as_ref().map_or_else(|status| *status, |_| Status::OK),
        18,
    );
    let opened = opened?.stateid;
    let second = fixture.state.owner_turn_by_state(&opened, OwnerSeq(2), fixture.now).unwrap();
    let stateid = fixture.state.confirm_open(&opened, &file(1), fixture.now).unwrap();
    finish_owner_call(fixture, second, Status::OK, 20);
    Ok(stateid)
}

// §16.27.4.
#[test]
fn renew_of_kerberos_client_requires_its_principal_or_open() {
    let (mut fixture, peer) = with_kerberos_client();
    let renew = |fixture: &mut Fixture, name: Option<&str>| {
        fixture.state.renew(peer.id, name.map(Arc::from).as_ref(), fixture.now)
    };
    let silent = |fixture: &Fixture| fixture.state.status(fixture.now).clients[0].silent_ms;
    fixture.advance(1000);
    for stranger in [Some("mallory@R"), Some("alice@R"), None] {
        assert_eq!(renew(&mut fixture, stranger), Err(Status::ACCESS));
        assert_eq!(silent(&fixture), 1000);
    }
    assert_eq!((renew(&mut fixture, Some("host/a@R")), silent(&fixture)), (Ok(()), 0));
    let stateid = open_by(&mut fixture, &peer, "alice owner", Some("alice@R"));
    fixture.advance(1000);
    assert_eq!(renew(&mut fixture, Some("mallory@R")), Err(Status::ACCESS));
    assert_eq!(renew(&mut fixture, None), Err(Status::ACCESS));
    assert_eq!((renew(&mut fixture, Some("alice@R")), silent(&fixture)), (Ok(()), 0));
    let third = fixture.state.owner_turn_by_state(&stateid, OwnerSeq(3), fixture.now).unwrap();
    fixture.close(None, &stateid, 1).unwrap();
    finish_owner_call(&mut fixture, third, Status::OK, 4);
    assert_eq!(renew(&mut fixture, Some("alice@R")), Err(Status::ACCESS));
    open_by(&mut fixture, &peer, "auth_sys owner", None);
    assert_eq!(renew(&mut fixture, None), Ok(()));
    let unproven = v40_client(&mut fixture, "auth_sys");
    assert_eq!(
        (
            fixture.state.renew(unproven.id, None, fixture.now),
            fixture.state.renew(unproven.id, Some(&"alice@R".into()), fixture.now)
        ),
        (Ok(()), Ok(()))
    );
}
