//! 4.0: who may act on what somebody proven has opened.

use super::v40::{client, done, open, open_by, proven_client, try_open_by};
use super::*;
use crate::state::limits;

fn heard(world: &mut World, stateid: &Stateid, caller: Option<&str>) -> Result<(), Status> {
    world.state.heard_by(stateid, caller.map(Arc::from).as_ref(), world.now)
}

fn silent_ms(world: &World) -> u64 {
    world.state.status(world.now).clients[0].silent_ms
}

#[test]
fn what_was_opened_by_a_proven_user_serves_him_and_his_machine_and_renews_for_nobody_else() {
    let mut world = World::new();
    let peer = proven_client(&mut world);
    let stateid = open_by(&mut world, &peer, "alice's", Some("alice@R"));
    world.pass(1000);
    for stranger in [Some("mallory@R"), Some("alice@S"), None] {
        assert_eq!(heard(&mut world, &stateid, stranger), Err(Status::ACCESS));
    }
    // Rights are judged elsewhere; the lease is none of a stranger's.
    assert!(world.state.io(None, &stateid, &file(1), Io::Read, world.now).is_ok());
    assert_eq!(silent_ms(&world), 1000);
    for one in ["alice@R", "host/a@R"] {
        assert_eq!((heard(&mut world, &stateid, Some(one)), silent_ms(&world)), (Ok(()), 0));
        world.pass(1000);
    }
    // A mount of the same client under AUTH_SYS.
    let said = open_by(&mut world, &peer, "somebody's", None);
    assert_eq!([None, Some("mallory@R")].map(|caller| heard(&mut world, &said, caller)), [Ok(()); 2]);
}

#[test]
fn a_name_that_is_known_names_nobody_elses_owner() {
    let names = [None, Some("alice@R"), Some("mallory@R")].map(|caller| known_as(b"l", caller.map(Arc::from).as_ref()));
    assert!(names[0] != names[1] && names[0] != names[2] && names[1] != names[2]);
    // Nor one that looks like another's.
    assert_ne!(known_as(&names[1], None), names[1]);
    assert_ne!(known_as(&names[1][1..], Some(&"mallory@R".into())), names[1]);
    let mut world = World::new();
    let peer = proven_client(&mut world);
    for known in names {
        assert_eq!(&*world.state.told_name(peer.client, &known.into()), b"l");
    }
}

#[test]
fn who_only_names_a_client_renews_no_lease() {
    let mut world = World::new();
    let peer = proven_client(&mut world);
    open_by(&mut world, &peer, "alice's", Some("alice@R"));
    let id = world.state.status(world.now).clients[0].id;
    world.pass(1000);
    for (caller, silent) in [(Some("mallory@R"), 1000), (None, 1000), (Some("alice@R"), 0)] {
        assert_eq!(world.state.client_of_40(id, caller.map(Arc::from).as_ref(), world.now), Ok(peer.client));
        assert_eq!(silent_ms(&world), silent, "{caller:?}");
    }
}

// Linux without a keytab introduces itself under AUTH_SYS.
#[test]
fn users_of_a_client_that_is_not_proven_are_told_apart_by_what_they_prove() {
    let mut world = World::new();
    let peer = client(&mut world, "said");
    let stateid = open_by(&mut world, &peer, "alice's", Some("alice@R"));
    assert_eq!(heard(&mut world, &stateid, Some("mallory@R")), Err(Status::ACCESS));
    assert_eq!([Some("alice@R"), None].map(|caller| heard(&mut world, &stateid, caller)), [Ok(()); 2]);
    let mut world = World::new();
    let peer = client(&mut world, "said");
    let stateid = open(&mut world, &peer);
    assert_eq!([None, Some("mallory@R")].map(|caller| heard(&mut world, &stateid, caller)), [Ok(()); 2]);
}

/// How many opens this principal gets.
fn greedy(world: &mut World, peer: &Peer, who: Option<&str>) -> usize {
    (0..100).take_while(|number| try_open_by(world, peer, &format!("{who:?}{number}"), who).is_ok()).count()
}

#[test]
fn stranger_opens_at_most_half_of_what_a_client_may() {
    let mut config = config();
    config.limits.opens_per_client_max = 20;
    let opens = |who: &[Option<&str>]| {
        let mut world = World::with(config.clone(), &[]);
        let peer = proven_client(&mut world);
        who.iter().map(|who| greedy(&mut world, &peer, *who)).collect::<Vec<_>>()
    };
    let (mallory, alice, machine) = (Some("mallory@R"), Some("alice@R"), Some("host/a@R"));
    assert_eq!(opens(&[mallory, alice]), [10, 10]);
    // Unproven callers count as one principal.
    assert_eq!(opens(&[None, alice]), [10, 10]);
    // The principal that introduced the client may open all.
    assert_eq!(opens(&[machine]), [20]);
    let mut world = World::with(config.clone(), &[]);
    let peer = client(&mut world, "said");
    assert_eq!(greedy(&mut world, &peer, None), 20);
}

#[test]
fn a_strangers_idle_owners_keep_nobody_from_one() {
    let mut world = World::new();
    let peer = proven_client(&mut world);
    let alices = open_by(&mut world, &peer, "alice's", Some("alice@R"));
    for number in 1..limits::OWNERS_PER_CLIENT_MAX as u32 {
        let name = known_as(&number.to_be_bytes(), Some(&"mallory@R".into()));
        let turn = world.state.owner_turn(peer.client, OwnerKind::Open, &name, vouch_nfs4::OwnerSeq(1)).unwrap();
        done(&mut world, turn, Status::OK, 18);
    }
    assert!(try_open_by(&mut world, &peer, "another of alice's", Some("alice@R")).is_ok());
    let by = LockBy::New { open: &alices, owner: b"l", seq: vouch_nfs4::OwnerSeq(1) };
    let range = Range::new(0, 1).unwrap();
    let call = LockCall { client: None, file: file(1), by, range, mode: Mode::Shared, wait: false, reclaim: false };
    assert!(world.state.lock(&call, world.now).is_ok());
}

#[test]
fn a_lock_owner_without_ranges_that_is_new_to_another_open_hangs_on_that() {
    let mut world = World::new();
    let peer = proven_client(&mut world);
    let opens = ["one", "other"].map(|name| open_by(&mut world, &peer, name, Some("alice@R")));
    let range = Range::new(0, 10).unwrap();
    let lock = |world: &mut World, open: &Stateid| {
        let by = LockBy::New { open, owner: b"l", seq: vouch_nfs4::OwnerSeq(1) };
        let call = LockCall { client: None, file: file(1), by, range, mode: Mode::Shared, wait: false, reclaim: false };
        world.state.lock(&call, world.now).unwrap()
    };
    let first = lock(&mut world, &opens[0]);
    world.state.unlock(None, &first, &file(1), range, world.now).unwrap();
    lock(&mut world, &opens[1]);
    assert_eq!(world.state.close(None, &opens[1], &file(1), world.now), Err(Status::LOCKS_HELD));
    assert!(world.state.close(None, &opens[0], &file(1), world.now).is_ok());
}

#[test]
fn silent_clients_make_room_for_a_principal_as_for_others() {
    let mut config = config();
    config.limits.opens_max = 20;
    let mut world = World::with(config, &[]);
    let silent = client(&mut world, "silent");
    let taken = (0..100).take_while(|number| try_open_by(&mut world, &silent, &format!("{number}"), None).is_ok()).count();
    assert!(taken > 10);
    world.pass(LEASE_MS + 1);
    let peer = proven_client(&mut world);
    assert!(greedy(&mut world, &peer, Some("alice@R")) > 10);
}
