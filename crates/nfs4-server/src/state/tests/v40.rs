//! 4.0: SETCLIENTID, owners with their numbers, OPEN_CONFIRM, RELEASE_LOCKOWNER (RFC 7530).

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

fn set(world: &mut World, name: &'static str, life: u8, uid: u32) -> Result<(ClientId, Verifier), SetClientError> {
    let owner = ClientOwner { verifier: Verifier([life; 8]), id: Bytes(name.as_bytes()) };
    world.state.set_client(&owner, callback(9), sys(&user(uid)), world.now)
}

pub(super) fn client(world: &mut World, name: &'static str) -> Peer {
    client_from(world, 1, name)
}

fn client_from(world: &mut World, last: u8, name: &'static str) -> Peer {
    let owner = ClientOwner { verifier: Verifier([1; 8]), id: Bytes(name.as_bytes()) };
    let user = user(0);
    let credential = Credential { address: [127, 0, 0, last].into(), ..sys(&user) };
    let (id, confirm) = world.state.set_client(&owner, callback(9), credential, world.now).unwrap();
    world.state.confirm_client(id, confirm, credential, world.now).unwrap();
    let client = world.state.client_of_40(id, None, world.now).unwrap();
    Peer { client, id, session: SessionId([0; 16]), connection: ConnectionId(0), seq: SlotSeq(0) }
}

fn turn(world: &mut World, peer: &Peer, seq: u32) -> Result<OwnerTurn, Status> {
    world.state.owner_turn(peer.client, OwnerKind::Open, b"owner", OwnerSeq(seq))
}

pub(super) fn done(world: &mut World, turn: OwnerTurn, status: Status, op: u32) {
    let OwnerTurn::New(token) = turn else { panic!("it is new: {turn:?}") };
    world.state.owner_done(&token, status, OwnerReply { op, bytes: vec![op as u8], file: None });
}

/// An open that is confirmed; the owner's next number is 3.
pub(super) fn open(world: &mut World, peer: &Peer) -> Stateid {
    let first = turn(world, peer, 1).unwrap();
    let opened = world.open_as(peer, "owner", 1, share(3, 0), Claim::New, Want::Unstated).unwrap();
    assert!(opened.confirm);
    done(world, first, Status::OK, 18);
    // Not before it is confirmed.
    assert_eq!(world.state.io(None, &opened.stateid, &file(1), Io::Read, 0), Err(Status::BAD_STATEID));
    let second = world.state.owner_turn_by_state(&opened.stateid, OwnerSeq(2), 0).unwrap();
    let stateid = world.state.confirm_open(&opened.stateid, &file(1), 0).unwrap();
    done(world, second, Status::OK, 20);
    assert_eq!(stateid.seq, StateSeq(2));
    stateid
}

/// Another open of the owner, once it is confirmed.
pub(super) fn open_next(world: &mut World, peer: &Peer, seq: u32) {
    let next = turn(world, peer, seq).unwrap();
    let opened = world.open_as(peer, "owner", 2, share(1, 0), Claim::New, Want::Unstated).unwrap();
    assert!(!opened.confirm);
    done(world, next, Status::OK, 18);
}

// RFC 7530, section 16.33.5, where the principal is a number that anybody claims.
#[test]
fn a_restart_that_comes_from_elsewhere_takes_nothing_from_a_client_that_lives() {
    let mut world = World::new();
    let victim = client(&mut world, "a");
    let root = user(0);
    let elsewhere = Credential { address: [127, 0, 0, 9].into(), ..sys(&root) };
    let owner = ClientOwner { verifier: Verifier([2; 8]), id: Bytes(b"a") };
    // Nothing would be lost.
    let (id, confirm) = world.state.set_client(&owner, callback(9), elsewhere, world.now).unwrap();
    let stateid = open(&mut world, &victim);
    assert_eq!(world.state.confirm_client(id, confirm, elsewhere, world.now), Err(Status::CLID_INUSE));
    let again = world.state.set_client(&owner, callback(9), elsewhere, world.now);
    assert_eq!(again, Err(SetClientError::InUse(callback(9))));
    assert!(world.state.io(Some(victim.client), &stateid, &file(1), Io::Read, world.now).is_ok());
    let (id, confirm) = set(&mut world, "a", 2, 0).unwrap();
    assert_eq!(world.state.confirm_client(id, confirm, sys(&root), world.now), Ok(()));
}

#[test]
fn a_client_is_confirmed_by_the_verifier_it_was_given() {
    // Sections 16.33.5 and 16.34.5.
    let mut world = World::new();
    let (id, confirm) = set(&mut world, "a", 1, 0).unwrap();
    assert_eq!(world.state.client_of_40(id, None, 0), Err(Status::STALE_CLIENTID));
    assert_eq!(world.state.confirm_client(id, Verifier([0; 8]), sys(&user(0)), 0), Err(Status::STALE_CLIENTID));
    assert_eq!(world.state.confirm_client(id, confirm, sys(&user(5)), 0), Err(Status::CLID_INUSE));
    // A retry replaces the unconfirmed record.
    let (next, confirm_next) = set(&mut world, "a", 1, 0).unwrap();
    assert_ne!(next, id);
    assert_eq!(world.state.confirm_client(id, confirm, sys(&user(0)), 0), Err(Status::STALE_CLIENTID));
    for _ in 0..2 {
        assert_eq!(world.state.confirm_client(next, confirm_next, sys(&user(0)), 0), Ok(()));
    }
    // The same client again: a change of callback, under the same id.
    let (same, change) = set(&mut world, "a", 1, 0).unwrap();
    assert_eq!(same, next);
    assert_eq!(world.state.confirm_client(same, change, sys(&user(0)), 0), Ok(()));
    assert_eq!(world.state.renew(next, None, 0), Ok(()));
}

#[test]
fn a_call_that_had_to_wait_shortens_no_lease() {
    let mut world = World::new();
    let peer = client(&mut world, "a");
    world.pass(50_000);
    world.state.renew(peer.id, None, 50_000).unwrap();
    // One that came before, and is done now.
    world.state.renew(peer.id, None, 10_000).unwrap();
    assert_eq!(world.state.status(50_000).clients[0].silent_ms, 0);
}

#[test]
fn a_restart_takes_the_state_of_the_life_before() {
    let mut world = World::new();
    let peer = client(&mut world, "a");
    open(&mut world, &peer);
    assert!(matches!(set(&mut world, "a", 1, 5), Err(SetClientError::InUse(at)) if at == callback(9)));
    let (id, confirm) = set(&mut world, "a", 2, 0).unwrap();
    assert_eq!(world.state.totals().opens, 1);
    world.state.confirm_client(id, confirm, sys(&user(0)), 0).unwrap();
    assert_eq!((world.state.totals().opens, world.open_files()), (0, 0));
}

#[test]
fn the_last_reply_of_an_owner_is_replayed() {
    // Section 9.1.7.
    let mut world = World::new();
    let peer = client(&mut world, "a");
    let stateid = open(&mut world, &peer);
    assert_eq!(turn(&mut world, &peer, 2), Ok(OwnerTurn::Replay(OwnerReply { op: 20, bytes: vec![20], file: None })));
    assert_eq!(turn(&mut world, &peer, 1), Err(Status::BAD_SEQID));
    assert_eq!(turn(&mut world, &peer, 4), Err(Status::BAD_SEQID));
    let third = turn(&mut world, &peer, 3).unwrap();
    assert_eq!(turn(&mut world, &peer, 3), Err(Status::DELAY));
    done(&mut world, third, Status::BAD_STATEID, 18);
    // What was not understood did not count.
    let third = world.state.owner_turn_by_state(&stateid, OwnerSeq(3), 0).unwrap();
    let closed = world.state.close(None, &stateid, &file(1), 0).unwrap();
    assert_eq!(closed.seq, StateSeq(3));
    done(&mut world, third, Status::OK, 4);
    // A retry of the CLOSE finds its owner by the stateid that is no more.
    assert!(matches!(world.state.owner_turn_by_state(&stateid, OwnerSeq(3), 0), Ok(OwnerTurn::Replay(OwnerReply { op: 4, .. }))));
    assert_eq!(world.state.io(None, &closed, &file(1), Io::Read, 0), Err(Status::BAD_STATEID));
    let fourth = turn(&mut world, &peer, 4).unwrap();
    done(&mut world, fourth, Status::NOENT, 18);
    assert_eq!(world.state.owner_turn_by_state(&stateid, OwnerSeq(3), 0), Err(Status::BAD_STATEID));
}

#[test]
fn an_owner_that_never_confirmed_may_begin_again() {
    // Section 16.18.5.
    let mut world = World::new();
    let peer = client(&mut world, "a");
    let first = turn(&mut world, &peer, 1).unwrap();
    world.open_as(&peer, "owner", 1, share(3, 0), Claim::New, Want::Unstated).unwrap();
    done(&mut world, first, Status::OK, 18);
    let again = turn(&mut world, &peer, 77).unwrap();
    assert_eq!(world.state.totals().opens, 0);
    assert!(world.open_as(&peer, "owner", 1, share(1, 0), Claim::New, Want::Unstated).unwrap().confirm);
    done(&mut world, again, Status::OK, 18);
}

#[test]
fn an_owner_whose_first_open_was_refused_may_begin_again_with_the_same_number() {
    // Section 16.18.5: libnfs does after SYMLINK, and must not hear of the link again.
    let mut world = World::new();
    let peer = client(&mut world, "a");
    let first = turn(&mut world, &peer, 0).unwrap();
    done(&mut world, first, Status::SYMLINK, 18);
    let again = turn(&mut world, &peer, 0).unwrap();
    assert!(matches!(again, OwnerTurn::New(_)));
    world.open_as(&peer, "owner", 1, share(3, 0), Claim::New, Want::Unstated).unwrap();
    done(&mut world, again, Status::OK, 18);
    // What has succeeded is not done twice.
    assert!(matches!(turn(&mut world, &peer, 0), Ok(OwnerTurn::Replay(_))));
}

#[test]
fn lock_owners_have_numbers_of_their_own_and_are_released() {
    // Sections 16.10.5 and 16.37.3.
    let mut world = World::new();
    let peer = client(&mut world, "a");
    let stateid = open(&mut world, &peer);
    let third = world.state.owner_turn_by_state(&stateid, OwnerSeq(3), 0).unwrap();
    let name = known_as(b"l", None);
    let by = LockBy::New { open: &stateid, owner: &name, seq: OwnerSeq(50) };
    let range = Range::new(0, 10).unwrap();
    let call = LockCall { client: None, file: file(1), by, range, mode: Mode::Exclusive, wait: true, reclaim: false };
    let lock = world.state.lock(&call, 0).unwrap();
    done(&mut world, third, Status::OK, 12);
    assert_eq!(world.state.owner_turn_by_state(&lock, OwnerSeq(52), 0), Err(Status::BAD_SEQID));
    assert_eq!(world.state.release_lock_owner(peer.client, b"l", None), Err(Status::LOCKS_HELD));
    let next = world.state.owner_turn_by_state(&lock, OwnerSeq(51), 0).unwrap();
    world.state.unlock(None, &lock, &file(1), range, 0).unwrap();
    done(&mut world, next, Status::OK, 14);
    assert_eq!(world.state.release_lock_owner(peer.client, b"l", None), Ok(()));
    assert_eq!(world.state.owner_turn_by_state(&lock, OwnerSeq(52), 0), Err(Status::BAD_STATEID));
}

#[test]
fn what_expired_is_told_from_what_never_was() {
    // Sections 9.1.4.2 and 13.1.5.
    let mut world = World::new();
    let peer = client(&mut world, "a");
    let stateid = open(&mut world, &peer);
    world.pass(LEASE_MS + 1);
    let other = world.peer("b");
    world.open(&other, 1, 1, 2).unwrap();
    assert_eq!(world.state.io(None, &stateid, &file(1), Io::Read, 0), Err(Status::EXPIRED));
    assert_eq!(world.state.renew(peer.id, None, 0), Err(Status::EXPIRED));
    let foreign = Stateid { other: [9; 12], ..stateid };
    assert_eq!(world.state.io(None, &foreign, &file(1), Io::Read, 0), Err(Status::STALE_STATEID));
    assert_eq!(world.state.renew(ClientId(9), None, 0), Err(Status::STALE_CLIENTID));
}

#[test]
fn delegations_wait_for_a_callback_that_arrives() {
    let mut world = World::new();
    let peer = client(&mut world, "a");
    open(&mut world, &peer);
    let again = |world: &mut World| world.open_as(&peer, "owner", 2, share(1, 0), Claim::New, Want::Unstated).unwrap().delegation;
    again(&mut world);
    assert_eq!(again(&mut world), Granted::None);
    let probe = world.callbacks().remove(0);
    assert_eq!((probe.op.clone(), probe.ident, probe.sequence), (CallbackOp::Null, 3, None));
    world.answer(&probe, Status::OK);
    assert!(matches!(again(&mut world), Granted::Read(_)));
    let other = world.peer("b");
    assert_eq!(world.open(&other, 2, 2, 0), Err(Status::DELAY));
    let recall = world.callbacks().remove(0);
    world.state.callback_done(recall.id, CallbackAnswer::Unreachable, 0);
    // Section 16.29.4.
    assert_eq!(world.state.renew(peer.id, None, 0), Err(Status::CB_PATH_DOWN));
    world.pass(LEASE_MS - 1);
    let _ = world.state.renew(peer.id, None, world.now);
    world.pass(1);
    assert_eq!(world.state.totals().delegations, 0);
}

#[test]
fn owners_of_calls_that_failed_are_forgotten() {
    // Section 16.18.5: they may begin again with any number, as if they had never been.
    let mut world = World::new();
    let peer = client(&mut world, "a");
    let kept = open(&mut world, &peer);
    for number in 0..100u32 {
        let turn = world.state.owner_turn(peer.client, OwnerKind::Open, &number.to_be_bytes(), OwnerSeq(1)).unwrap();
        done(&mut world, turn, Status::NOENT, 18);
    }
    assert_eq!(world.state.owners.len(), 1);
    assert!(world.state.io(None, &kept, &file(1), Io::Read, 0).is_ok());
    // One that was confirmed keeps its numbers.
    let third = turn(&mut world, &peer, 3).unwrap();
    done(&mut world, third, Status::NOENT, 18);
    assert!(matches!(turn(&mut world, &peer, 3), Ok(OwnerTurn::Replay(_))));
}

#[test]
fn source_that_makes_all_the_owners_it_can_leaves_room_for_others() {
    let mut config = config();
    config.limits.owners_max = 100;
    let mut world = World::with(config, &[]);
    let [a, another, b, c] = [(1, "a"), (1, "another name"), (2, "b"), (3, "c")].map(|(last, name)| client_from(&mut world, last, name));
    let greedy = |world: &mut World, peer: &Peer| {
        let mut begin = |number: u32| world.state.owner_turn(peer.client, OwnerKind::Open, &number.to_be_bytes(), OwnerSeq(1));
        (0..1000).take_while(|&number| begin(number).is_ok()).count()
    };
    assert_eq!((greedy(&mut world, &a), greedy(&mut world, &another), greedy(&mut world, &b)), (80, 0, 16));
    assert!(turn(&mut world, &c, 1).is_ok());
    assert_eq!(turn(&mut world, &a, 1), Err(Status::RESOURCE));
}

#[test]
fn idle_owners_are_not_looked_for_at_each_call_that_finds_no_room() {
    let mut world = World::new();
    let peer = client(&mut world, "a");
    // One that is confirmed, and stays for its numbers.
    let stateid = open(&mut world, &peer);
    let third = world.state.owner_turn_by_state(&stateid, OwnerSeq(3), 0).unwrap();
    world.state.close(None, &stateid, &file(1), 0).unwrap();
    done(&mut world, third, Status::OK, 4);
    let fourth = turn(&mut world, &peer, 4).unwrap();
    for number in 1..limits::OWNERS_PER_CLIENT_MAX as u32 {
        world.state.owner_turn(peer.client, OwnerKind::Open, &number.to_be_bytes(), OwnerSeq(1)).unwrap();
    }
    // All are under way: none may be forgotten.
    assert_eq!(world.state.owner_turn(peer.client, OwnerKind::Open, b"one more", OwnerSeq(1)), Err(Status::RESOURCE));
    done(&mut world, fourth, Status::NOENT, 18);
    // It was just looked for in vain; it is again before long.
    let mut refused = 0;
    while world.state.owner_turn(peer.client, OwnerKind::Open, b"one more", OwnerSeq(1)).is_err() {
        refused += 1;
    }
    assert_eq!(refused, limits::OWNERS_LOOK_ROUND - 1);
}

#[test]
fn callbacks_have_the_flavour_that_the_client_introduced_itself_under() {
    // Section 3.3.3; Linux denies CB_COMPOUND under AUTH_NONE.
    let mut world = World::new();
    client(&mut world, "a");
    let probe = world.callbacks().remove(0);
    assert_eq!(probe.credential, CallbackCredential::Sys { uid: 0, gid: 0, machine: Arc::from([]) });
}

pub(super) fn proven(name: &str) -> Principal {
    Principal::Gss { name: name.into() }
}

pub(super) fn under_kerberos(principal: &Principal) -> Credential<'_> {
    Credential { flavour: Flavour::Krb5p, ..sys(principal) }
}

/// A client that its machine has introduced under Kerberos.
pub(super) fn proven_client(world: &mut World) -> Peer {
    let owner = ClientOwner { verifier: Verifier([1; 8]), id: Bytes(b"proven") };
    let machine = proven("host/a@R");
    let (id, confirm) = world.state.set_client(&owner, callback(9), under_kerberos(&machine), world.now).unwrap();
    world.state.confirm_client(id, confirm, under_kerberos(&machine), world.now).unwrap();
    let client = world.state.client_of_40(id, None, world.now).unwrap();
    Peer { client, id, session: SessionId([0; 16]), connection: ConnectionId(0), seq: SlotSeq(0) }
}

/// A confirmed open of file 1 by an owner of this name, who is this principal; the owner's next
/// number is 3.
pub(super) fn open_by(world: &mut World, peer: &Peer, name: &str, principal: Option<&str>) -> Stateid {
    try_open_by(world, peer, name, principal).unwrap()
}

pub(super) fn try_open_by(world: &mut World, peer: &Peer, name: &str, principal: Option<&str>) -> Result<Stateid, Status> {
    let opener = principal.map(Arc::from);
    let call = OpenCall {
        client: peer.client,
        owner: name.as_bytes(),
        file: file(1),
        share: share(3, 0),
        claim: Claim::New,
        want: Want::Unstated,
        extra: Extra::default(),
        truncate: false,
        terms: TERMS,
        opener: opener.as_ref(),
    };
    let first = world.state.owner_turn(peer.client, OwnerKind::Open, name.as_bytes(), OwnerSeq(1)).unwrap();
    let opened = world.state.open(&call, world.handle.clone(), share(3, 0), world.now);
    done(world, first, opened.as_ref().map_or_else(|status| *status, |_| Status::OK), 18);
    let opened = opened?.stateid;
    let second = world.state.owner_turn_by_state(&opened, OwnerSeq(2), world.now).unwrap();
    let stateid = world.state.confirm_open(&opened, &file(1), world.now).unwrap();
    done(world, second, Status::OK, 20);
    Ok(stateid)
}

// RFC 7530, section 16.27.4.
#[test]
fn a_proven_client_is_renewed_by_who_introduced_it_and_by_who_has_a_file_open() {
    let mut world = World::new();
    let peer = proven_client(&mut world);
    let renew = |world: &mut World, name: Option<&str>| world.state.renew(peer.id, name.map(Arc::from).as_ref(), world.now);
    let silent = |world: &World| world.state.status(world.now).clients[0].silent_ms;
    world.pass(1000);
    for stranger in [Some("mallory@R"), Some("alice@R"), None] {
        assert_eq!(renew(&mut world, stranger), Err(Status::ACCESS));
        assert_eq!(silent(&world), 1000);
    }
    assert_eq!((renew(&mut world, Some("host/a@R")), silent(&world)), (Ok(()), 0));
    let stateid = open_by(&mut world, &peer, "alice's", Some("alice@R"));
    world.pass(1000);
    assert_eq!(renew(&mut world, Some("mallory@R")), Err(Status::ACCESS));
    // No file is open under AUTH_SYS.
    assert_eq!(renew(&mut world, None), Err(Status::ACCESS));
    assert_eq!((renew(&mut world, Some("alice@R")), silent(&world)), (Ok(()), 0));
    let third = world.state.owner_turn_by_state(&stateid, OwnerSeq(3), world.now).unwrap();
    world.state.close(None, &stateid, &file(1), world.now).unwrap();
    done(&mut world, third, Status::OK, 4);
    assert_eq!(renew(&mut world, Some("alice@R")), Err(Status::ACCESS));
    // A mount of the same client under AUTH_SYS.
    open_by(&mut world, &peer, "somebody's", None);
    assert_eq!(renew(&mut world, None), Ok(()));
    // What was introduced under AUTH_SYS is renewed as before: machines change the user that they say.
    let said = client(&mut world, "said");
    assert_eq!(
        (world.state.renew(said.id, None, world.now), world.state.renew(said.id, Some(&"alice@R".into()), world.now)),
        (Ok(()), Ok(()))
    );
}
